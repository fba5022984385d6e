/* A key in the user keyring: `leave TOKEN`, `find`, or `pair TOKEN` (both in one session keyring of its own, which ends
 * with it); `fill N` adds N keys. */
#include "probe.h"
#include <linux/keyctl.h>

static void leave(const char *token, int ring)
{
    probe("leave", syscall(SYS_add_key, "user", "hotcell-attack-left", token, strlen(token), ring));
}

static void find(void)
{
    char text[256] = "";
    long key = -1;
    static const int rings[] = {KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING, KEY_SPEC_USER_SESSION_KEYRING};
    for (size_t i = 0; i < 3 && key < 0; i++)
        key = syscall(SYS_keyctl, KEYCTL_SEARCH, rings[i], "user", "hotcell-attack-left", 0);
    probe("find", key);
    if (key >= 0 && syscall(SYS_keyctl, KEYCTL_READ, key, text, sizeof text - 1) > 0)
        fact("key", "%s", text);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (strcmp(argv[1], "pair") == 0 && argc > 2) {
        syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
        if (fork() == 0) {
            leave(argv[2], KEY_SPEC_SESSION_KEYRING);
            _exit(0);
        }
        wait(NULL);
        find();
    } else if (strcmp(argv[1], "leave") == 0 && argc > 2) {
        leave(argv[2], KEY_SPEC_USER_KEYRING);
        leave(argv[2], KEY_SPEC_SESSION_KEYRING);
    } else if (strcmp(argv[1], "fill") == 0 && argc > 2) {
        syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
        int got = 0;
        for (char name[32]; got < atoi(argv[2]); got++) {
            snprintf(name, sizeof name, "attack.%d", got);
            if (syscall(SYS_add_key, "user", name, "x", 1, KEY_SPEC_SESSION_KEYRING) < 0)
                break;
        }
        fact("keys", "%d", got);
        nap(argc > 3 ? atol(argv[3]) : 0);
    } else {
        find();
    }
    return 0;
}
