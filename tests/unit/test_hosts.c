/* Maps of owners: nothing of their making outlives who makes them. */
#include "base/fd.h"
#include "base/loop.h"
#include "warden/hosts.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEEPERS = 60, PATIENCE_US = 5 * 1000 * 1000 };

/* One after the other, until it is killed. There is no mount to show them in, which is found out last. */
static _Noreturn void make_maps(int ready)
{
    const struct uid_plan uids = {.source = UIDS_RANGE, .uid_base = 100000, .gid_base = 100000, .count = 65536};
    for (unsigned long i = 0;; i++) {
        struct hc_err err = {0};
        hosts_map(-1, 1, 1, &uids, 1, &err);
        if (i == 0 && write(ready, "r", 1) != 1)
            _exit(1);
    }
}

static void end_children(void)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *list = fopen(path, "re");
    while (list && fscanf(list, "%d", &child) == 1)
        kill(child, SIGKILL);
    if (list)
        fclose(list);
}

/* Whoever made one and is killed leaves a child behind, if there is one, which becomes ours. */
static void test_the_process_of_a_map_goes_with_its_maker(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    for (unsigned i = 0; i < KEEPERS; i++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        pid_t keeper = fork();
        if (keeper == 0)
            make_maps(ready[1]);
        hc_close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        hc_close(ready[0]);
        usleep(1000 + i * 37);
        assert_int_equal(kill(keeper, SIGKILL), 0);
        uint64_t deadline = hc_now() + PATIENCE_US;
        pid_t gone;
        while ((gone = waitpid(-1, NULL, WNOHANG)) >= 0 && hc_now() < deadline)
            usleep(gone == 0 ? 1000 : 0);
        if (gone >= 0) {
            end_children();
            fail_msg("after kill %u a child is left", i);
        }
        assert_int_equal(errno, ECHILD);
    }
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_process_of_a_map_goes_with_its_maker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
