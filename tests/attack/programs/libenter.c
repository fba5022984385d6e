/* Loaded into an interpreter by a guest of its own making (process.dlopen): becomes the attack program that ENTER
 * names, with the seal, the pid and the fds that the interpreter has. Words are separated by 0x1f. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void enter(void)
{
    char *words = getenv("ENTER"), *list[256];
    size_t count = 0;
    if (!words)
        return;
    unsetenv("ENTER");
    for (char *word = strsep(&words, "\x1f"); word && count < 255; word = strsep(&words, "\x1f"))
        list[count++] = word;
    list[count] = NULL;
    for (int fd = 0; fd < 3; fd++)
        fcntl(fd, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(list[0], list);
    perror(list[0]);
    _exit(127);
}
