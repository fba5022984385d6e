/* The system calls that a cell refuses, by name: kernel/syscalls.h as a list of words. */
#ifndef HC_RUN_DENIED_H
#define HC_RUN_DENIED_H

#include <stddef.h>

/* The call that a text about EPERM or ENOSYS names. In a message it is what failed ("unshare: …", "unshare failed",
 * "unshare(…"); in a line of code it is what is called ("os.chroot("). NULL where there is none, or more than one:
 * then it is not certain. */
const char *denied_in_message(const char *text);
const char *denied_in_code(const char *line);

#endif
