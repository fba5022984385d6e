/* See seal.h. */
#include "gateway/seal.h"

#include "kernel/landlock.h"
#include "kernel/seccomp_gateway.h"
#include "serve/proto.h"
#include <errno.h>

int seal_files(struct hc_err *err)
{
    static const struct landlock_path paths[] = {
        {SERVE_STATE, LANDLOCK_WRITE},  {SERVE_LANGUAGES, LANDLOCK_READ}, {"/proc/self", LANDLOCK_READ},
        {"/dev/null", LANDLOCK_DEVICE}, {"/usr", LANDLOCK_READ}, /* the C library loads parts of itself when they are
                                                                    first needed */
    };
    if (hc_landlock_abi() == 0)
        return 0; /* its root has nothing else in it */
    return hc_landlock_restrict(paths, sizeof paths / sizeof *paths, true, err);
}

int seal_calls(struct hc_err *err)
{
    return hc_seccomp_load_gateway(err);
}
