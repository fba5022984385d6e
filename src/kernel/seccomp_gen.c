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
 * at its arguments, and what is the same stands there once: a seventh of the size of a search over single numbers,
 * which matters, because the kernel checks and compiles the whole program whenever a job loads it.
 *
 * BPF jumps forward only. So the program is made from its end to its beginning: what an instruction jumps to is there
 * before it. A conditional jump has eight bits for its offset; what is farther away is reached by a long jump behind
 * it.
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
    bool report, quiet; /* quiet: the listener hears of it, and nobody else */
    const char *name;
    unsigned arg, arg2;
    unsigned value;
    int error;
};

static const struct rule rules[] = {
#define ALLOW(name) {RULE_ALLOW, false, false, #name, 0, 0, 0, 0},
#define DENY(name) {RULE_DENY, false, false, #name, 0, 0, 0, EPERM},
#define DENY_MASK(name, arg, mask, error) {RULE_DENY_MASK, false, false, #name, arg, 0, mask, error},
#define DENY_EQ(name, arg, value, error) {RULE_DENY_EQ, false, false, #name, arg, 0, value, error},
#define ONLY_EQ(name, arg, value, error) {RULE_ONLY_EQ, false, false, #name, arg, 0, value, error},
#define DENY_CREATE(name, flags, mode, mask) {RULE_DENY_CREATE, false, false, #name, flags, mode, mask, EPERM},
#define REPORT(name) {RULE_DENY, true, false, #name, 0, 0, 0, EPERM},
#define REPORT_MASK(name, arg, mask, error) {RULE_DENY_MASK, true, false, #name, arg, 0, mask, error},
#define REPORT_EQ(name, arg, value, error) {RULE_DENY_EQ, true, false, #name, arg, 0, value, error},
#define TELL_EQ(name, arg, value, error) {RULE_DENY_EQ, true, true, #name, arg, 0, value, error},
#include SYSCALL_TABLE
};
enum { RULES = sizeof rules / sizeof *rules, MAX_CODE = 4096 };

struct entry { /* one system call: its number and its rules, which stand together in the table */
    int number;
    const struct rule *first;
    size_t count;
};

/* A place in a program, counted from its end: the instruction there and what follows it stay where they are. */
typedef size_t label;

enum { MAX_TAILS = 64 };

struct program {
    struct sock_filter code[MAX_CODE]; /* the last first */
    size_t length;
    bool asks; /* a listener, about what is to be reported */
    struct tail {
        const struct entry *entry;
        label at;
    } tails[MAX_TAILS];
    size_t tail_count;
};

static label emit(struct program *program, unsigned short code, unsigned char jt, unsigned char jf, unsigned k)
{
    if (program->length == MAX_CODE) {
        fprintf(stderr, "seccomp_gen: the filter has outgrown %d instructions\n", MAX_CODE);
        exit(1);
    }
    program->code[program->length] = (struct sock_filter){code, jt, jf, k};
    return program->length++;
}

static label answer(struct program *program, unsigned action)
{
    for (label at = 0; at < program->length; at++)
        if (program->code[at].code == (BPF_RET | BPF_K) && program->code[at].k == action)
            return at;
    return emit(program, BPF_RET | BPF_K, 0, 0, action);
}

static label answer_errno(struct program *program, int error)
{
    return answer(program, SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA));
}

static label allow(struct program *program)
{
    return answer(program, SECCOMP_RET_ALLOW);
}

static label refuse(struct program *program, const struct rule *rule)
{
    return rule->report && program->asks ? answer(program, SECCOMP_RET_USER_NOTIF) : answer_errno(program, rule->error);
}

/* `target`, or a long jump to it: where an instruction that comes two places further up can still reach it. */
static label within_reach(struct program *program, label target)
{
    size_t offset = program->length - target;
    return offset < UCHAR_MAX ? target : emit(program, BPF_JMP | BPF_JA, 0, 0, (unsigned)offset - 1);
}

static label branch(struct program *program, unsigned short test, unsigned value, label yes, label no)
{
    yes = within_reach(program, yes);
    no = within_reach(program, no);
    return emit(program, BPF_JMP | test | BPF_K, (unsigned char)(program->length - yes - 1),
                (unsigned char)(program->length - no - 1), value);
}

/* Then comes what was made last. */
static label load(struct program *program, size_t offset, label next)
{
    if (next != program->length - 1)
        emit(program, BPF_JMP | BPF_JA, 0, 0, (unsigned)(program->length - next - 1));
    return emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)offset);
}

/* The kernel takes modes, flags and families as 32 bits; so does the filter (the low half: both architectures are
 * little-endian). */
static label load_argument(struct program *program, unsigned arg, label next)
{
    return load(program, offsetof(struct seccomp_data, args) + 8 * (size_t)arg, next);
}

static label emit_tail(struct program *program, const struct entry *entry)
{
    const struct rule *rule = entry->first;
    label next;
    switch (rule->kind) {
    case RULE_ALLOW:
        return allow(program);
    case RULE_DENY:
        return refuse(program, rule);
    case RULE_DENY_MASK:
        next = branch(program, BPF_JSET, rule->value, refuse(program, rule), allow(program));
        return load_argument(program, rule->arg, next);
    case RULE_DENY_CREATE:
        next = branch(program, BPF_JSET, rule->value, refuse(program, rule), allow(program));
        next = load_argument(program, rule->arg2, next);
        next = branch(program, BPF_JSET, O_CREAT, next, allow(program));
        return load_argument(program, rule->arg, next);
    case RULE_DENY_EQ:
    case RULE_ONLY_EQ:
        break;
    }
    next = rule->kind == RULE_ONLY_EQ ? answer_errno(program, rule->error) : allow(program);
    for (size_t i = entry->count; i-- > 0;)
        next = branch(program, BPF_JEQ, rule[i].value,
                      rule[i].kind == RULE_ONLY_EQ ? allow(program) : refuse(program, &rule[i]), next);
    return load_argument(program, rule->arg, next);
}

static bool is_same(const struct entry *a, const struct entry *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        const struct rule *one = &a->first[i], *other = &b->first[i];
        if (one->kind != other->kind || one->report != other->report || one->arg != other->arg ||
            one->arg2 != other->arg2 || one->value != other->value || one->error != other->error)
            return false;
    }
    return a->count == b->count;
}

/* How calls of one range are answered; NULL: nobody knows them. */
static label leaf(struct program *program, const struct entry *entry)
{
    if (!entry)
        return answer_errno(program, ENOSYS);
    for (size_t i = 0; i < program->tail_count; i++)
        if (is_same(program->tails[i].entry, entry))
            return program->tails[i].at;
    label at = emit_tail(program, entry);
    if (program->tail_count < MAX_TAILS)
        program->tails[program->tail_count++] = (struct tail){entry, at};
    return at;
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

static label emit_search(struct program *program, const struct range *ranges, size_t count)
{
    if (count == 1)
        return leaf(program, ranges->entry);
    size_t half = count / 2;
    label above = emit_search(program, ranges + half, count - half);
    label below = emit_search(program, ranges, half);
    return branch(program, BPF_JGE, ranges[half].first, above, below);
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
    program.length = program.tail_count = 0;
    program.asks = asks;
    label next = emit_search(&program, ranges, range_count);
    next = branch(&program, BPF_JGE, FOREIGN_NUMBERS, answer(&program, SECCOMP_RET_KILL_PROCESS), next);
    next = load(&program, offsetof(struct seccomp_data, nr), next);
    next = branch(&program, BPF_JEQ, OUR_ARCH, next, answer(&program, SECCOMP_RET_KILL_PROCESS));
    load(&program, offsetof(struct seccomp_data, arch), next);
    printf("static const struct sock_filter %s[] = {\n", name);
    for (size_t i = program.length; i-- > 0;) {
        const struct sock_filter *code = &program.code[i];
        printf("    {0x%02x, %u, %u, 0x%08x},\n", code->code, code->jt, code->jf, code->k);
    }
    printf("};\n");
}

/* The rule by which calls of this number are reported, or NULL. */
static const struct rule *reported(const struct entry *entry)
{
    for (size_t i = 0; i < entry->count; i++)
        if (entry->first[i].report && !entry->first[i].quiet)
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
        reports += entries[i].first->report;
    }
    if (argc > 1)
        return 0;
    print_filter("seccomp_filter", entries, count, false);
    if (reports)
        print_filter("seccomp_reporting_filter", entries, count, true);
    return 0;
}
