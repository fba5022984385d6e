/*
 * See warm_last.h. What an exit closes is closed before the last word is said, so that whoever reads the program's
 * output has all of it. Threads of the program could see that, and go on until the kernel ends them: where there are
 * any, the exit is an ordinary one.
 */
#include "cell/warm_last.h"

#include "cell/witness.h"
#include "kernel/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/single_threaded.h>
#include <unistd.h>

static pid_t heard; /* the process whose it is; or 0 */

void warm_last_is_heard(bool yes)
{
    heard = yes ? getpid() : 0;
}

static bool may_say(void)
{
    return heard && getpid() == heard && __libc_single_threaded;
}

void warm_last_say(int code)
{
    if (!may_say() || hc_close_range(0, ~0U, 0) < 0)
        return;
    syscall(SYS_exit_group, code, WITNESS_LAST);
    syscall(SYS_exit_group, code, 0); /* not as the C library makes it, which may leave our word where it is */
}

static void say_at_exit(int code, void *nothing)
{
    (void)nothing;
    if (!may_say())
        return; /* another thread may hold a stream, and never let it go */
    fflush(NULL);
    warm_last_say(code);
}

void warm_last_at_exit(void)
{
    on_exit(say_at_exit, NULL);
}
