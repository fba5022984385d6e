/*
 * hotcell-door.so: the door for an interpreter that can call C but cannot receive fds. R calls these by .C, which gives
 * every argument as a pointer to numbers, bytes or texts of its own.
 *
 * What always holds: 0 to 2 are a call's own from door_call to door_rest, and /dev/null otherwise; whatever libc has in
 * its buffers belongs to one call alone. Every function says in *result how it went: below 0 is -errno.
 */
#include "base/fd.h"
#include "cell/door.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { CODE_LIMIT = 64 << 20 };

/* A library that an interpreter loads has nobody to carry its state. */
static struct {
    int door, null;
    char *code;
    size_t length;
} own = {.door = -1, .null = -1};

void door_begin(int *result) EXPORT;
void door_rest(int *result) EXPORT;
void door_call(double *id, int *size, int *result) EXPORT;
void door_code(unsigned char *code, int *result) EXPORT;
void door_answer(unsigned char *text, int *length, int *result) EXPORT;

static void close_in_child(void)
{
    own.door = hc_close(own.door);
}

static void place(const int fds[3])
{
    fflush(NULL);
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    __fpurge(stdin);
    clearerr(stdin);
}

void door_begin(int *result)
{
    own.door = door_take();
    own.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (own.null >= 0)
        own.null = door_move_away(own.null);
    *result = own.door < 0 ? own.door : own.null < 0 ? -EMFILE : -pthread_atfork(NULL, NULL, close_in_child);
    if (*result == 0)
        door_rest(result);
}

void door_rest(int *result)
{
    place((const int[]){own.null, own.null, own.null});
    *result = 0;
}

/* Waits. *result is 1 when there is a call with *size bytes of code; 0 when the door was closed. */
void door_call(double *id, int *size, int *result)
{
    long long number;
    int fds[DOOR_CALL_FDS];
    *result = door_next(own.door, &number, fds);
    if (*result != 1)
        return;
    *id = (double)number;
    place(fds + 1);
    free(own.code);
    own.code = NULL;
    own.length = 0;
    lseek(fds[0], 0, SEEK_SET);
    int code = hc_read_all(fds[0], CODE_LIMIT, &own.code, &own.length);
    *size = code < 0 ? code : (int)own.length;
    for (int i = 0; i < DOOR_CALL_FDS; i++)
        hc_close(fds[i]);
}

/* Into as many bytes as door_call said. */
void door_code(unsigned char *code, int *result)
{
    memcpy(code, own.code, own.length);
    *result = 0;
}

void door_answer(unsigned char *text, int *length, int *result)
{
    *result = door_send(own.door, (const char *)text, (size_t)*length);
}
