/* The program that the kernel is given answers each call as its line in syscalls.h says, both with and without a
 * listener: it is carried out here, as the kernel would, for every number and with arguments on both sides of each
 * rule. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "seccomp_filter.h"

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#define OTHER_ARCH AUDIT_ARCH_AARCH64
#define FOREIGN_NUMBER 0x40000000 /* x32 */
#else
#define OUR_ARCH AUDIT_ARCH_AARCH64
#define OTHER_ARCH AUDIT_ARCH_X86_64
#define FOREIGN_NUMBER -1
#endif

enum kind { IS_ALLOWED, IS_DENIED, DENIES_MASK, DENIES_EQ, ONLY_ALLOWS_EQ, DENIES_CREATE };

struct line {
    enum kind kind;
    bool report;
    const char *name;
    unsigned arg, arg2, value;
    int error;
};

static const struct line lines[] = {
#define ALLOW(name) {IS_ALLOWED, false, #name, 0, 0, 0, 0},
#define DENY(name) {IS_DENIED, false, #name, 0, 0, 0, EPERM},
#define DENY_MASK(name, arg, mask, error) {DENIES_MASK, false, #name, arg, 0, mask, error},
#define DENY_EQ(name, arg, value, error) {DENIES_EQ, false, #name, arg, 0, value, error},
#define ONLY_EQ(name, arg, value, error) {ONLY_ALLOWS_EQ, false, #name, arg, 0, value, error},
#define DENY_CREATE(name, flags, mode, mask) {DENIES_CREATE, false, #name, flags, mode, mask, EPERM},
#define REPORT(name) {IS_DENIED, true, #name, 0, 0, 0, EPERM},
#define REPORT_MASK(name, arg, mask, error) {DENIES_MASK, true, #name, arg, 0, mask, error},
#define REPORT_EQ(name, arg, value, error) {DENIES_EQ, true, #name, arg, 0, value, error},
#define TELL_EQ(name, arg, value, error) {DENIES_EQ, true, #name, arg, 0, value, error},
#include "kernel/syscalls.h"
};
enum { LINES = sizeof lines / sizeof *lines, NUMBERS = 700 };

static const struct program {
    const struct sock_filter *code;
    size_t length;
    bool asks;
} programs[] = {
    {seccomp_filter, sizeof seccomp_filter / sizeof *seccomp_filter, false},
    {seccomp_reporting_filter, sizeof seccomp_reporting_filter / sizeof *seccomp_reporting_filter, true},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static unsigned carry_out(const struct program *program, const struct seccomp_data *data)
{
    uint32_t value = 0;
    for (size_t at = 0; at < program->length;) {
        const struct sock_filter *code = &program->code[at++];
        switch (code->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(code->k % 4 == 0 && code->k < sizeof *data);
            memcpy(&value, (const char *)data + code->k, sizeof value);
            break;
        case BPF_JMP | BPF_JA:
            at += code->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += value == code->k ? code->jt : code->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            at += value >= code->k ? code->jt : code->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += value & code->k ? code->jt : code->jf;
            break;
        case BPF_RET | BPF_K:
            return code->k;
        default:
            fail_msg("an instruction of another kind: %#x", code->code);
        }
    }
    fail_msg("the program has no end");
    return 0;
}

static unsigned refusal(const struct program *program, const struct line *line)
{
    return line->report && program->asks ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | (unsigned)line->error;
}

static bool is_of(const struct line *line, int number)
{
    return seccomp_syscall_resolve_name(line->name) == number;
}

/* What the table says. Lines of one call stand together. */
static unsigned expected(const struct program *program, const struct line *first, const struct seccomp_data *data)
{
    const struct line *line = first;
    switch (line->kind) {
    case IS_ALLOWED:
        return SECCOMP_RET_ALLOW;
    case IS_DENIED:
        return refusal(program, line);
    case DENIES_MASK:
        return (uint32_t)data->args[line->arg] & line->value ? refusal(program, line) : SECCOMP_RET_ALLOW;
    case DENIES_CREATE:
        return (uint32_t)data->args[line->arg] & O_CREAT && (uint32_t)data->args[line->arg2] & line->value
                   ? refusal(program, line)
                   : SECCOMP_RET_ALLOW;
    case DENIES_EQ:
    case ONLY_ALLOWS_EQ:
        break;
    }
    for (; line < lines + LINES && strcmp(line->name, first->name) == 0; line++)
        if ((uint32_t)data->args[line->arg] == line->value)
            return line->kind == ONLY_ALLOWS_EQ ? SECCOMP_RET_ALLOW : refusal(program, line);
    return first->kind == ONLY_ALLOWS_EQ ? SECCOMP_RET_ERRNO | (unsigned)first->error : SECCOMP_RET_ALLOW;
}

static void check(const struct line *first, struct seccomp_data *data)
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        unsigned said = carry_out(&programs[i], data), wanted = expected(&programs[i], first, data);
        if (said != wanted)
            fail_msg("%s(%#llx, %#llx, %#llx, …): %#x and not %#x", first->name, (unsigned long long)data->args[0],
                     (unsigned long long)data->args[1], (unsigned long long)data->args[2], said, wanted);
    }
}

/* Each bit of the value, the value, what is beside it, and what only the upper half has; with a file that is to be
 * made and without. */
static void check_arguments(const struct line *first, const struct line *line, struct seccomp_data *data)
{
    uint64_t tried[40] = {0, line->value, line->value + 1, line->value - 1, ~0ull, (uint64_t)line->value << 32};
    size_t count = 6;
    for (unsigned bit = 0; bit < 32; bit++)
        tried[count++] = 1ull << bit;
    unsigned arg = line->kind == DENIES_CREATE ? line->arg2 : line->arg;
    for (size_t i = 0; i < count; i++)
        for (int creates = 0; creates < 2; creates++) {
            memset(data->args, 0, sizeof data->args);
            if (line->kind == DENIES_CREATE)
                data->args[line->arg] = creates ? O_CREAT | O_WRONLY : O_WRONLY;
            data->args[arg] = tried[i];
            check(first, data);
        }
}

static void test_each_call_is_answered_as_its_line_says(void **state)
{
    (void)state;
    const struct line *first = lines;
    for (const struct line *line = lines; line < lines + LINES; line++) {
        if (strcmp(line->name, first->name) != 0)
            first = line;
        int number = seccomp_syscall_resolve_name(line->name);
        struct seccomp_data data = {.nr = number, .arch = OUR_ARCH};
        if (number >= 0)
            check_arguments(first, line, &data);
    }
}

static void test_what_has_no_line_is_unknown(void **state)
{
    (void)state;
    for (int number = 0; number < NUMBERS; number++) {
        bool has_line = false;
        for (size_t i = 0; i < LINES && !has_line; i++)
            has_line = is_of(&lines[i], number);
        struct seccomp_data data = {.nr = number, .arch = OUR_ARCH};
        for (size_t i = 0; i < PROGRAMS && !has_line; i++)
            assert_int_equal(carry_out(&programs[i], &data), SECCOMP_RET_ERRNO | ENOSYS);
    }
}

static void test_calls_of_a_foreign_architecture_end_the_process(void **state)
{
    (void)state;
    const struct seccomp_data foreign[] = {{.nr = 3, .arch = AUDIT_ARCH_I386},
                                           {.nr = 0, .arch = OTHER_ARCH},
                                           {.nr = FOREIGN_NUMBER, .arch = OUR_ARCH},
                                           {.nr = -1, .arch = OUR_ARCH}};
    for (size_t i = 0; i < PROGRAMS; i++)
        for (size_t j = 0; j < sizeof foreign / sizeof *foreign; j++)
            assert_true(carry_out(&programs[i], &foreign[j]) == SECCOMP_RET_KILL_PROCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_is_answered_as_its_line_says),
        cmocka_unit_test(test_what_has_no_line_is_unknown),
        cmocka_unit_test(test_calls_of_a_foreign_architecture_end_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
