/* Asynchronous data transfers between dataspaces: the interface for programs. */
#include "norns/norns.h"
