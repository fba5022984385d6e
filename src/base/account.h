/* Accounts, by /etc/passwd alone: the program is linked statically, for a quick start, and has no name service. */
#ifndef HC_BASE_ACCOUNT_H
#define HC_BASE_ACCOUNT_H

#include <stddef.h>
#include <sys/types.h>

/* The login name, and the home folder, of a uid. 0; -ENOENT when it has no account; -ENAMETOOLONG. */
int hc_account_name(uid_t uid, char *name, size_t size);
int hc_account_home(uid_t uid, char *home, size_t size);

#endif
