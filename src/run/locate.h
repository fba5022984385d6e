/* Where hotcell's own parts are: in the build tree, in an installation, or where the environment says. */
#ifndef HC_RUN_LOCATE_H
#define HC_RUN_LOCATE_H

#include "base/err.h"
#include <stddef.h>

/* The folder of the file that this code was loaded from: the program, or libhotcell. 0 or -errno. */
int locate_own_folder(char *folder, size_t size);
/* The folder that has hotcell-warden and hotcell-init: $HOTCELL_LIBEXEC, beside ourselves, or the installation's. */
int locate_libexec(char *folder, size_t size, struct hc_err *err);

#endif
