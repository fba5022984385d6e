/* hotcell audit: whether the log of what matters for security is whole, and what it says. */
#include "base/fd.h"
#include "base/suggest.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "store/audit.h"
#include "text/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_BROKEN = 1, DEFAULT_LIMIT = 50, LINE_DEPTH = 32, AUDIT_HASH_LENGTH = 64 };

/* ---- verify ---- */

/* What the chain says to a person. */
static void show_report(const struct audit_report *report, bool whole, bool kept)
{
    if (!whole) {
        printf("The audit log is not whole: line %" PRIu64 ": %s.\n", report->bad_line, report->why);
        return;
    }
    printf("The audit log is whole: %" PRIu64 " entr%s.\n", report->lines, report->lines == 1 ? "y" : "ies");
    if (report->unended > 0)
        printf("After them are %" PRIu64 " bytes of one that is not whole: its writing was cut short, and nothing was "
               "written since, or somebody cut it.\n",
               report->unended);
    if (kept)
        printf("The hash that was kept is in it.\n");
    if (report->lines > 0)
        printf("Its last hash is %s; kept elsewhere, it shows that nothing was cut off at the end: "
               "hotcell audit verify --kept HASH.\n",
               report->last_hash);
    else
        printf("That is so before the first start of a server; every start is an entry.\n");
}

static int check_kept(const char *kept, struct hc_err *err)
{
    if (!kept || (strlen(kept) == AUDIT_HASH_LENGTH && strspn(kept, "0123456789abcdefABCDEF") == AUDIT_HASH_LENGTH))
        return 0;
    hc_fail(err, HC_CLASS_REQUEST, EINVAL, "--kept: \"%.80s\" is not a hash", kept);
    return hc_err_remedy(err, "give the %d hexadecimal digits that hotcell audit verify printed", AUDIT_HASH_LENGTH);
}

static int verify(const struct cli *cli, const struct client_line *line, int fd, struct hc_err *err)
{
    struct audit_report report = {0};
    const char *kept = line->value[CLIENT_KEPT];

    int status = check_kept(kept, err);
    if (status < 0)
        return status;
    status = audit_verify(fd, kept, &report);
    if (status < 0 && status != -EBADMSG)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot read the audit log");
    bool whole = status == 0;
    if (cli->json) {
        json_cleanup json_t *object =
            json_pack("{s:b, s:I, s:I, s:I, s:o, s:o, s:s}", "valid", whole, "lines", (json_int_t)report.lines, "torn",
                      (json_int_t)report.torn, "unended", (json_int_t)report.unended, "bad_line",
                      whole ? json_null() : json_integer((json_int_t)report.bad_line), "why",
                      whole ? json_null() : hc_json_text_lossy(report.why), "last_hash", report.last_hash);
        hc_cleanup_free char *text = object ? hc_json_write(object, false) : NULL;
        status = text ? json_show(text) : -ENOMEM;
        if (status < 0)
            return message_cannot_write(status);
    } else {
        show_report(&report, whole, kept != NULL);
    }
    return whole ? EXIT_OK : EXIT_BROKEN;
}

/* ---- list ---- */

struct listing {
    const char *event; /* NULL: any */
    size_t limit;
    json_t *entries; /* the last ones that match */
    uint64_t unread; /* lines that are no entries */
};

static void take_line(struct listing *listing, const char *line, size_t length)
{
    json_t *entry = NULL;

    if (hc_json_read(line, length, LINE_DEPTH, &entry, NULL) < 0) {
        listing->unread++;
        return;
    }
    if (listing->event && strcmp(json_text(entry, "event"), listing->event) != 0) {
        json_decref(entry);
        return;
    }
    json_array_append_new(listing->entries, entry);
    if (json_array_size(listing->entries) > listing->limit)
        json_array_remove(listing->entries, 0);
}

static int read_lines(int fd, struct listing *listing)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    FILE *file = fdopen(fd, "r");

    if (!file)
        return -errno;
    while ((length = getline(&line, &size, file)) > 0)
        take_line(listing, line, (size_t)length - (line[length - 1] == '\n'));
    int status = ferror(file) ? -EIO : 0;
    free(line);
    fclose(file);
    return status;
}

static int show_table(const json_t *entries)
{
    static const char *const heads[] = {"N", "WHEN", "EVENT", "TENANT", "RUN", "DETAIL"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i), *detail = json_object_get(entry, "detail");
        const json_t *reason = json_object_get(detail, "reason");
        char number[24], when[32];
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(entry, "n")));
        hc_cleanup_free char *text = json_plain(json_is_string(reason) ? reason : detail);
        table_add(&table, TABLE_DIM, number);
        table_add(&table, TABLE_PLAIN, client_time(json_text(entry, "at"), when, sizeof when));
        table_add(&table, TABLE_WARN, json_text(entry, "event"));
        table_add(&table, TABLE_PLAIN, json_text(entry, "tenant")[0] ? json_text(entry, "tenant") : "-");
        table_add(&table, TABLE_PLAIN, json_text(entry, "run")[0] ? json_text(entry, "run") : "-");
        table_add(&table, TABLE_PLAIN, text ? text : "");
    }
    return table_print(&table);
}

static int list(const struct cli *cli, const struct client_line *line, int fd, struct hc_err *err)
{
    uint64_t limit = 0;

    int status = client_count(line, CLIENT_LIMIT, "limit", 1, 1000000, DEFAULT_LIMIT, &limit, err);
    if (status < 0)
        return status;
    json_cleanup json_t *entries = json_array();
    struct listing listing = {.event = line->value[CLIENT_EVENT], .limit = limit, .entries = entries};
    hc_cleanup_fd int copy = dup(fd);
    status = copy < 0 ? -errno : read_lines(HC_TAKE_FD(copy), &listing);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot read the audit log");
    hc_cleanup_free char *text = cli->json ? hc_json_write(entries, false) : NULL;
    status = !cli->json ? show_table(entries) : text ? json_show(text) : -ENOMEM;
    if (listing.unread > 0)
        message_note("%" PRIu64 " lines are no entries; hotcell audit verify says where the first is", listing.unread);
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* ---- which ---- */

static int check_words(const struct client_line *line, struct hc_err *err)
{
    static const char *const words[] = {"verify", "list"};
    enum { COUNT = sizeof words / sizeof *words };
    const char *word = line->operands > 0 ? line->operand[0] : "";

    if (line->operands > 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell audit %s takes no arguments, but there is \"%s\"", word,
                       line->operand[1]);
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(words[i], word) == 0)
            return 0;
    const char *nearest = hc_suggest(word, words, COUNT);
    if (word[0])
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell audit cannot \"%s\"", word);
    else
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell audit needs a word that says what to do");
    if (nearest)
        return hc_err_remedy(err, "did you mean \"hotcell audit %s\"?", nearest);
    return hc_err_remedy(err, "audit verify, or audit list");
}

int client_audit(struct cli *cli, const struct client_line *line)
{
    struct state_place place;
    struct hc_err err = {0};
    hc_cleanup_fd int fd = -1;

    int status = check_words(line, &err);
    if (status == 0)
        status = state_find(line, &place, &err);
    if (status == 0) {
        fd = state_audit(&place, STATE_READ, &err);
        status = fd < 0 ? fd : 0;
    }
    if (status == 0)
        status = state_enter(&place, &err); /* the log is parsed without root's rights, too */
    if (status == 0)
        status = strcmp(line->operand[0], "verify") == 0 ? verify(cli, line, fd, &err) : list(cli, line, fd, &err);
    return status < 0 ? message_error(cli, &err) : status;
}
