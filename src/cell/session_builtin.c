/*
 * hotcell-session.so: theory of operation.
 *
 * A shell session is a bash that gets its commands one call at a time, through the door (fd 3, docs/SANDBOXES.md), and
 * keeps everything that a shell has between them. This library is loaded into it (enable -f) and has one builtin,
 * hotcell_call, which waits for a call, puts the call's fds in the places of 0 to 2, has bash carry out the code as
 * `eval` would, puts /dev/null back, and answers.
 *
 * The shell is an interactive one, though nobody types: only such a shell goes on with its state after a SIGINT, after
 * ${x?} and after an unset variable under set -u. All of these throw away whatever is being done, this builtin
 * included, and read the next line. So the shell's own input is a pipe in which there are always some lines more that
 * say hotcell_call: the next one finds a call that was not answered, and answers it. What must be undone on the way
 * out is done by an unwind handler of bash's.
 *
 * SIGINT is heeded by a shell that waits for a child only if the child dies of it, so it should be sent to the whole
 * group, as a terminal does. A child that catches or ignores it leaves the shell in the belief that all is well. Who
 * wants the call to end in any case sends SIGURG to the shell first: it is left alone when the child has ended,
 * whatever that ended of.
 *
 * What always holds: fds of ours are close-on-exec, out of the way of those that scripts use, and closed in subshells;
 * a call that was begun is answered once, unless the shell ends; a frame that makes no sense ends the shell.
 */
#include "base/fd.h"
#include "cell/door.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- what bash has for its loadable builtins (builtins.h, evalstring.h, unwind_prot.h) ---- */

struct builtin {
    const char *name;
    int (*function)(void *words);
    int flags;
    const char *const *long_doc;
    const char *short_doc;
    void *handle;
};
enum { BUILTIN_ENABLED = 1, SEVAL_NONINT = 1, SEVAL_NOHIST = 4, SEVAL_RESETLINE = 16 };

extern int last_command_exit_value, indirection_level, already_making_children;
extern volatile sig_atomic_t interrupt_state;
extern int (*this_shell_builtin)(void *words);
extern int wait_builtin(void *words);
extern int signal_is_trapped(int number);
extern int parse_and_execute(char *code, const char *name, int flags);
extern void begin_unwind_frame(const char *tag);
extern void add_unwind_protect(void (*function)(void *), void *argument);
extern void run_unwind_frame(const char *tag);
extern void cleanup_the_pipeline(void);
extern void *save_pipestatus_array(void);
extern void restore_pipestatus_array(void *list);
extern char *get_string_value(const char *name);
extern void *bind_variable(const char *name, const char *value, int flags);
extern void builtin_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void *xmalloc(size_t size);

/* ---- the session ---- */

#define FRAME_TAG "hotcell_call"
#define NEXT_LINE "\nhotcell_call\n" /* the first newline ends what is left of a line that was thrown away */
enum { CODE_LIMIT = 64 << 20, LINES_AHEAD = 64 };

/* A builtin has nobody to carry its state. */
static struct session {
    bool begun, active; /* active: 0 to 2 are a call's */
    int door, reader, feed, null;
    volatile sig_atomic_t urged; /* the call is to end, whatever it is doing */
    bool unanswered;
    long long id;
    int status; /* $? of the last call, and the other two of its traces */
    void *pipestatus;
    char *last_word;
} session = {.door = -1, .reader = -1, .feed = -1, .null = -1};

__attribute__((noreturn)) static void leave(const char *why)
{
    if (why)
        dprintf(2, "hotcell: %s\n", why);
    _exit(why ? 125 : 0);
}

static void close_in_child(void)
{
    session.door = hc_close(session.door);
    session.reader = hc_close(session.reader);
    session.feed = hc_close(session.feed);
    session.null = hc_close(session.null);
}

static void heed_at_last(int number)
{
    (void)number;
    session.urged = session.active;
    if (!session.active || interrupt_state != 0)
        return;
    /* `wait` does not look at the variable, and counts an interrupt on top of it as a second one, which it then waits
     * for: it gets one at once. bash reads its table of traps in its own handlers, too. */
    // NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c)
    if (this_shell_builtin == wait_builtin && !signal_is_trapped(SIGINT))
        raise(SIGINT);
    else
        interrupt_state = 1; /* bash looks at it between commands, and when a child has ended */
}

/* ---- the door ---- */

static void send_frame(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void send_frame(const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (door_send(session.door, text, (size_t)length) < 0)
        leave(NULL);
}

static void answer(const char *status, int code)
{
    session.unanswered = false;
    send_frame("{\"id\":%lld,\"event\":\"done\",\"status\":\"%s\",\"exit_code\":%d,\"error\":null}", session.id, status,
               code);
}

/* The code, in bash's own memory. NULL: it cannot be one, and why is said on stderr. */
static char *read_code(int fd)
{
    char *data = NULL, *code = NULL;
    size_t length = 0;
    lseek(fd, 0, SEEK_SET);
    int result = hc_read_all(fd, CODE_LIMIT, &data, &length);
    if (result < 0)
        builtin_error("the code cannot be read: %s", strerror(-result));
    else if (strlen(data) != length)
        builtin_error("the code has a NUL character in it");
    else
        code = memcpy(xmalloc(length + 1), data, length + 1);
    free(data);
    return code;
}

/* ---- a call ---- */

static void begin(void)
{
    int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    session.begun = true;
    session.door = door_take();
    if (session.door < 0 || null < 0 || pipe2(ends, O_CLOEXEC) < 0)
        leave("there is no door");
    session.reader = door_move_away(ends[0]);
    session.feed = door_move_away(ends[1]);
    session.null = door_move_away(null);
    if (session.reader < 0 || session.feed < 0 || session.null < 0)
        leave("no fd is left for the session");
    pthread_atfork(NULL, NULL, close_in_child);
    signal(SIGURG, heed_at_last);
    dup2(session.reader, 0);
    dup2(session.null, 1);
    dup2(session.null, 2);
    const char *version = get_string_value("BASH_VERSION");
    send_frame("{\"event\":\"ready\",\"version\":\"%.*s\",\"fds\":true}",
               version ? (int)strspn(version, "0123456789.") : 0, version ? version : "");
}

/* The shell may have read many lines ahead, and thrown away some. */
static void feed_reader(void)
{
    int waiting = 0;
    ioctl(session.reader, FIONREAD, &waiting);
    for (size_t lines = (size_t)waiting / strlen(NEXT_LINE); lines < LINES_AHEAD; lines++)
        if (hc_write_all(session.feed, NEXT_LINE, strlen(NEXT_LINE)) < 0)
            leave("the shell does not read");
}

/* By bash, when it throws away what it does, too. */
static void take_back(void *unused)
{
    (void)unused;
    fflush(stdout);
    fflush(stderr);
    dup2(session.reader, 0);
    dup2(session.null, 1);
    dup2(session.null, 2);
    session.active = false;
}

static void keep_traces(int status)
{
    session.status = status;
    session.pipestatus = save_pipestatus_array();
    const char *word = get_string_value("_");
    free(session.last_word);
    session.last_word = word ? strdup(word) : NULL;
}

static void show_traces(void)
{
    if (session.pipestatus)
        restore_pipestatus_array(session.pipestatus);
    session.pipestatus = NULL;
    if (session.last_word)
        bind_variable("_", session.last_word, 0);
    last_command_exit_value = session.status;
}

static void carry_out(int fds[DOOR_CALL_FDS])
{
    begin_unwind_frame(FRAME_TAG);
    add_unwind_protect(take_back, NULL);
    session.active = session.unanswered = true;
    for (int i = 0; i < 3; i++)
        dup2(fds[1 + i], i);
    char *code = read_code(fds[0]);
    for (int i = 0; i < DOOR_CALL_FDS; i++)
        hc_close(fds[i]);
    show_traces();
    interrupt_state = session.urged = 0;
    int status = 2;
    indirection_level--; /* a call is no deeper than the shell itself: set -x shows it so */
    if (code)
        status = parse_and_execute(code, "line", SEVAL_NONINT | SEVAL_NOHIST | SEVAL_RESETLINE);
    indirection_level++;
    run_unwind_frame(FRAME_TAG);
    if (!session.urged) { /* a loop may have been left as if by `break` */
        keep_traces(status);
        answer(status ? "error" : "completed", status);
    }
}

static int call(void *words)
{
    (void)words;
    if (session.active || (session.begun && session.door < 0)) {
        builtin_error("this is how the session gets its commands, and no command of its own");
        return 2;
    }
    if (!session.begun)
        begin();
    if (session.unanswered) { /* thrown away: bash does that for nothing but an interrupt */
        /* Between a fork and the wait for it bash would wait in the next command, and take the status for its own. */
        cleanup_the_pipeline();
        already_making_children = 0;
        keep_traces(128 + SIGINT);
        answer("interrupted", session.status);
    }
    feed_reader();
    int fds[DOOR_CALL_FDS];
    int result = door_next(session.door, &session.id, fds);
    if (result <= 0)
        leave(result == 0 ? NULL : "what came through the door is no call");
    carry_out(fds);
    return 0; /* always: set -e and ERR traps have had their say */
}

static const char *const description[] = {"Waits for a call of the session and carries it out.", NULL};
extern struct builtin hotcell_call_struct;
__attribute__((visibility("default"))) struct builtin hotcell_call_struct = {
    .name = "hotcell_call",
    .function = call,
    .flags = BUILTIN_ENABLED,
    .long_doc = description,
    .short_doc = "hotcell_call",
};
