/* Result codes. Include <norns.h> or <nornsctl.h>. */
#if !defined(__NORNS_LIB_H__) && !defined(__NORNSCTL_LIB_H__)
#error "include <norns.h> or <nornsctl.h> instead of <norns_error.h>"
#endif

#ifndef __NORNS_ERROR_H__
#define __NORNS_ERROR_H__ 1

#define NORNS_ERRMAX 512

#define NORNS_SUCCESS 0
#define NORNS_ESNAFU (-1)         /* error in the service */
#define NORNS_EBADARGS (-2)       /* null pointer, unknown operation, invalid name or size */
#define NORNS_EBADREQUEST (-3)    /* the service did not understand the request */
#define NORNS_ENOMEM (-4)         /* no memory for a copy of the region */
#define NORNS_ETIMEOUT (-5)       /* the task was not over in time */

#define NORNS_ECONNFAILED (-6)    /* no service, no configuration, or no permission */
#define NORNS_ERPCSENDFAILED (-7)
#define NORNS_ERPCRECVFAILED (-8)
#define NORNS_EACCEPTPAUSED (-9)  /* after NORNSCTL_CMD_PAUSE_LISTEN */

#define NORNS_EJOBEXISTS (-10)
#define NORNS_ENOSUCHJOB (-11)

#define NORNS_EPROCESSEXISTS (-20)
#define NORNS_ENOSUCHPROCESS (-21)

#define NORNS_ENAMESPACEEXISTS (-30)
#define NORNS_ENOSUCHNAMESPACE (-31) /* unknown, or not one that the caller may use */
#define NORNS_ENAMESPACENOTEMPTY (-32)

#define NORNS_ETASKEXISTS (-40)
#define NORNS_ENOSUCHTASK (-41)   /* unknown, long over, or a task of another user */
#define NORNS_ETOOMANYTASKS (-42) /* the queue, or the caller's share of it, is full */
#define NORNS_ETASKSPENDING (-43) /* no shutdown before they are over */

/* States of a task */
#define NORNS_EUNDEFINED (-100)
#define NORNS_EPENDING (-101)
#define NORNS_EINPROGRESS (-102)
#define NORNS_EFINISHED (-103)
#define NORNS_EFINISHEDWERROR (-104)

#define NORNS_ERESOURCEEXISTS (-110)
#define NORNS_ENOSUCHRESOURCE (-111)

#define NORNS_ENOTSUPPORTED (-200)
#define NORNS_ESYSTEMERROR (-201) /* st_sys_errno has the number of errno(3) */

#endif
