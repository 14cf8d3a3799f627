/* Administration of the data transfer service. */
#include "norns/nornsctl.h"
