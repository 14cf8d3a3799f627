/* Included by <norns.h> and <nornsctl.h> if __NORNS_DEBUG__ is defined. */
#ifndef __NORNS_DEBUG_H__
#define __NORNS_DEBUG_H__ 1

#ifdef __cplusplus
extern "C" {
#endif

/* The next call reads the configuration file again. */
void libnorns_reload_config_file(void);
void libnornsctl_reload_config_file(void);

#ifdef __cplusplus
}
#endif

#endif
