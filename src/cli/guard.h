/*
 * A terminal in raw mode, and the certainty that it is put right again. What works with the terminal does so in a
 * process of its own; this one waits for it, and restores the terminal however it ended: by itself, by a signal, by a
 * fault, by SIGKILL. If it is this one that is killed, the other one is told, and restores it.
 */
#ifndef HC_CLI_GUARD_H
#define HC_CLI_GUARD_H

#include <signal.h>
#include <termios.h>

/* Runs `work` in a child, with SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH and SIGCONT blocked: it is to take them from
 * a signalfd. Its exit code; 128 plus the signal that ended it, which is in *fault and is 0 otherwise; or -errno where
 * it could not be started. */
int guard_run(int terminal, int (*work)(void *data), void *data, int *fault);

/* What guard_run blocks. */
void guard_signals(sigset_t *set);
/* Raw: every key goes on as it is. 0 or -errno; *before is how it was. */
int guard_raw(int terminal, struct termios *before);
void guard_restore(int terminal, const struct termios *before);

#endif
