/*
 * Built and run at build time: turns the table in syscalls.h (or another, by
 * -DSYSCALL_TABLE) into a BPF program and prints it as a C header. The filter
 * is thus compiled once for each build; loading it at run time is one system call, and the programs that load it carry
 * no compiler. Where calls are to be reported there is a second program, which asks a listener about these and is the
 * same in all else. With an argument it prints the list of these calls instead (reported.c).
 *
 * libseccomp resolves the names. It does not write the filter: its rules have one "otherwise" for the whole filter, and
 * ours differ by call (a refused family answers EAFNOSUPPORT, a refused flag EPERM, an unknown call ENOSYS). The
 * program is a binary search over ranges of numbers that are treated alike, with a short tail for each call that looks
 * at its arguments: a fifth of the size of a search over single numbers, which matters, because the kernel checks and
 * compiles the whole program whenever a job loads it. A conditional jump has eight bits for its offset; what is farther
 * away is reached by a long jump behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SYSCALL_TABLE
#define SYSCALL_TABLE "kernel/syscalls.h"
#endif

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#define FOREIGN_NUMBERS 0x40000000u /* x32 */
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#define FOREIGN_NUMBERS 0xffffffffu
#else
#error "the filter is not known for this architecture"
#endif

enum rule_kind { RULE_ALLOW, RULE_DENY, RULE_DENY_MASK, RULE_DENY_EQ, RULE_ONLY_EQ, RULE_DENY_CREATE };

struct rule {
    enum rule_kind kind;
    bool report;
    const char *name;
    unsigned arg, arg2;
    unsigned value;
    int error;
};

static const struct rule rules[] = {
#define ALLOW(name) {RULE_ALLOW, false, #name, 0, 0, 0, 0},
#define DENY(name) {RULE_DENY, false, #name, 0, 0, 0, EPERM},
#define DENY_MASK(name, arg, mask, error) {RULE_DENY_MASK, false, #name, arg, 0, mask, error},
#define DENY_EQ(name, arg, value, error) {RULE_DENY_EQ, false, #name, arg, 0, value, error},
#define ONLY_EQ(name, arg, value, error) {RULE_ONLY_EQ, false, #name, arg, 0, value, error},
#define DENY_CREATE(name, flags, mode, mask) {RULE_DENY_CREATE, false, #name, flags, mode, mask, EPERM},
#define REPORT(name) {RULE_DENY, true, #name, 0, 0, 0, EPERM},
#define REPORT_MASK(name, arg, mask, error) {RULE_DENY_MASK, true, #name, arg, 0, mask, error},
#define REPORT_EQ(name, arg, value, error) {RULE_DENY_EQ, true, #name, arg, 0, value, error},
#include SYSCALL_TABLE
};
enum { RULES = sizeof rules / sizeof *rules, MAX_CODE = 4096 };

struct entry { /* one system call: its number and its rules, which stand together in the table */
    int number;
    const struct rule *first;
    size_t count;
};

struct program {
    struct sock_filter code[MAX_CODE];
    size_t length;
    bool asks; /* a listener, about what is to be reported */
};

static size_t emit(struct program *program, unsigned short code, unsigned char jt, unsigned char jf, unsigned k)
{
    if (program->length == MAX_CODE) {
        fprintf(stderr, "seccomp_gen: the filter has outgrown %d instructions\n", MAX_CODE);
        exit(1);
    }
    program->code[program->length] = (struct sock_filter){code, jt, jf, k};
    return program->length++;
}

static void answer(struct program *program, unsigned action)
{
    emit(program, BPF_RET | BPF_K, 0, 0, action);
}
static void answer_errno(struct program *program, int error)
{
    answer(program, SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA));
}
static void refuse(struct program *program, const struct rule *rule)
{
    if (rule->report && program->asks)
        answer(program, SECCOMP_RET_USER_NOTIF);
    else
        answer_errno(program, rule->error);
}
static void load(struct program *program, size_t offset)
{
    emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)offset);
}
/* The kernel takes modes, flags and families as 32 bits; so does the filter (the low half: both architectures are
 * little-endian). */
static void load_argument(struct program *program, unsigned arg)
{
    load(program, offsetof(struct seccomp_data, args) + 8 * (size_t)arg);
}

static void emit_tail(struct program *program, const struct entry *entry)
{
    const struct rule *rule = entry->first;
    switch (rule->kind) {
    case RULE_ALLOW:
        answer(program, SECCOMP_RET_ALLOW);
        break;
    case RULE_DENY:
        refuse(program, rule);
        break;
    case RULE_DENY_MASK:
        load_argument(program, rule->arg);
        emit(program, BPF_JMP | BPF_JSET | BPF_K, 0, 1, rule->value);
        refuse(program, rule);
        answer(program, SECCOMP_RET_ALLOW);
        break;
    case RULE_DENY_CREATE:
        load_argument(program, rule->arg);
        emit(program, BPF_JMP | BPF_JSET | BPF_K, 0, 3, O_CREAT);
        load_argument(program, rule->arg2);
        emit(program, BPF_JMP | BPF_JSET | BPF_K, 0, 1, rule->value);
        refuse(program, rule);
        answer(program, SECCOMP_RET_ALLOW);
        break;
    case RULE_DENY_EQ:
    case RULE_ONLY_EQ:
        load_argument(program, rule->arg);
        for (size_t i = 0; i < entry->count; i++) {
            emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, rule[i].value);
            if (rule[i].kind == RULE_ONLY_EQ)
                answer(program, SECCOMP_RET_ALLOW);
            else
                refuse(program, &rule[i]);
        }
        if (rule->kind == RULE_ONLY_EQ)
            answer_errno(program, rule->error);
        else
            answer(program, SECCOMP_RET_ALLOW);
        break;
    }
}

/* A range of numbers from `first` up to the next range's, all treated alike: by the rules of one call, or unknown
 * (NULL). */
struct range {
    unsigned first;
    const struct entry *entry;
};

static bool alike(const struct entry *a, const struct entry *b, bool asks)
{
    if (!a || !b)
        return a == b;
    return a->first->kind == b->first->kind && (a->first->report == b->first->report || !asks) &&
           (a->first->kind == RULE_ALLOW || a->first->kind == RULE_DENY);
}

static size_t make_ranges(const struct entry *entries, size_t count, bool asks, struct range *ranges)
{
    size_t length = 0;
    unsigned next = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned number = (unsigned)entries[i].number;
        if (number > next)
            ranges[length++] = (struct range){next, NULL};
        if (length == 0 || !alike(ranges[length - 1].entry, &entries[i], asks))
            ranges[length++] = (struct range){number, &entries[i]};
        next = number + 1;
    }
    ranges[length++] = (struct range){next, NULL};
    return length;
}

static void emit_search(struct program *program, const struct range *ranges, size_t count)
{
    if (count == 1) {
        if (ranges->entry)
            emit_tail(program, ranges->entry);
        else
            answer_errno(program, ENOSYS);
        return;
    }
    size_t half = count / 2, test = emit(program, BPF_JMP | BPF_JGE | BPF_K, 0, 0, ranges[half].first);
    emit_search(program, ranges, half);
    size_t length = program->length - test - 1;
    if (length <= UCHAR_MAX) {
        program->code[test].jt = (unsigned char)length;
    } else { /* too far for a conditional jump: once more, with one over a long jump */
        program->length = test + 1;
        program->code[test].jf = 1;
        size_t jump = emit(program, BPF_JMP | BPF_JA, 0, 0, 0);
        program->code[jump].k = (unsigned)length;
        program->code[test].jt = 0;
        emit_search(program, ranges, half);
    }
    emit_search(program, ranges + half, count - half);
}

static int by_number(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    return left->number - right->number;
}

static size_t collect(struct entry *entries)
{
    size_t count = 0;
    for (size_t i = 0; i < RULES;) {
        size_t same = 1;
        while (i + same < RULES && strcmp(rules[i].name, rules[i + same].name) == 0)
            same++;
        int number = seccomp_syscall_resolve_name(rules[i].name);
        if (number == __NR_SCMP_ERROR) {
            fprintf(stderr, "seccomp_gen: no system call is named %s\n", rules[i].name);
            exit(1);
        }
        if (number >= 0)
            entries[count++] = (struct entry){number, &rules[i], same}; /* negative: not on this architecture */
        i += same;
    }
    qsort(entries, count, sizeof *entries, by_number);
    for (size_t i = 1; i < count; i++) {
        if (entries[i].number != entries[i - 1].number)
            continue;
        fprintf(stderr, "seccomp_gen: %s stands in two places\n", entries[i].first->name);
        exit(1);
    }
    return count;
}

static void print_filter(const char *name, const struct entry *entries, size_t count, bool asks)
{
    static struct program program;
    struct range ranges[2 * RULES + 1];
    size_t range_count = make_ranges(entries, count, asks, ranges);
    program.length = 0;
    program.asks = asks;
    load(&program, offsetof(struct seccomp_data, arch));
    emit(&program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, OUR_ARCH);
    answer(&program, SECCOMP_RET_KILL_PROCESS);
    load(&program, offsetof(struct seccomp_data, nr));
    emit(&program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, FOREIGN_NUMBERS);
    answer(&program, SECCOMP_RET_KILL_PROCESS);
    emit_search(&program, ranges, range_count);
    printf("static const struct sock_filter %s[] = {\n", name);
    for (size_t i = 0; i < program.length; i++) {
        const struct sock_filter *code = &program.code[i];
        printf("    {0x%02x, %u, %u, 0x%08x},\n", code->code, code->jt, code->jf, code->k);
    }
    printf("};\n");
}

/* The rule by which calls of this number are reported, or NULL. */
static const struct rule *reported(const struct entry *entry)
{
    for (size_t i = 0; i < entry->count; i++)
        if (entry->first[i].report)
            return &entry->first[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct entry entries[RULES];
    size_t count = collect(entries), reports = 0;
    (void)argv;
    printf("/* Made by seccomp_gen from %s: %zu calls. */\n", SYSCALL_TABLE, count);
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = reported(&entries[i]);
        if (rule && argc > 1)
            printf("{%d, %d, \"%s\"},\n", entries[i].number, rule->error, rule->name);
        reports += rule != NULL;
    }
    if (argc > 1)
        return 0;
    print_filter("seccomp_filter", entries, count, false);
    if (reports)
        print_filter("seccomp_reporting_filter", entries, count, true);
    return 0;
}
