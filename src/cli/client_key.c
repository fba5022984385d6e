/* hotcell key: the keys of a server, in its state folder. A running server notices by itself. */
#include "base/fd.h"
#include "base/suggest.h"
#include "cli/client.h"
#include "cli/json.h"
#include "cli/message.h"
#include "cli/table.h"
#include "store/audit.h"
#include "store/store.h"
#include "text/json.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The folder, its database and its audit log, opened in the order that rights allow. */
struct keyring {
    struct state_place place;
    struct store *store;
    struct audit *audit;
};

static int keyring_open(const struct client_line *line, enum state_use use, struct keyring *keyring, struct hc_err *err)
{
    hc_cleanup_fd int audit = -1;

    int status = state_find(line, &keyring->place, err);
    if (status == 0 && use != STATE_READ) {
        audit = state_audit(&keyring->place, use, err);
        status = audit < 0 ? audit : 0;
    }
    if (status == 0)
        status = state_enter(&keyring->place, err);
    if (status == 0 && use != STATE_READ)
        status = audit_open(HC_TAKE_FD(audit), &keyring->audit, err);
    if (status == 0)
        status = store_open(keyring->place.folder, NULL, use == STATE_READ, &keyring->store, err);
    return status;
}

static void keyring_close(struct keyring *keyring)
{
    if (keyring->store)
        store_close(keyring->store);
    if (keyring->audit)
        audit_close(keyring->audit);
}

/* ---- key objects ---- */

static json_t *time_json(int64_t microseconds)
{
    time_t seconds = (time_t)(microseconds / 1000000);
    char date[32];
    struct tm utc;

    if (microseconds == 0 || !gmtime_r(&seconds, &utc) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        return json_null();
    return json_string(date);
}

static json_t *quota_json(uint64_t quota)
{
    return quota ? json_integer((json_int_t)quota) : json_null();
}

static json_t *key_json(const struct key_row *row)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "name", row->name, "prefix", row->prefix,
                     "runs_per_minute", quota_json(row->runs_per_minute), "concurrent", quota_json(row->concurrent),
                     "cpu_seconds_per_day", quota_json(row->cpu_seconds_per_day), "compile_cache",
                     !row->no_compile_cache, "created_at", time_json(row->created_at), "used_at",
                     time_json(row->used_at), "revoked_at", time_json(row->revoked_at));
}

/* A store_key_fn; data is a JSON list. */
static int collect_key(void *data, const struct key_row *row)
{
    return json_array_append_new(data, key_json(row)) == 0 ? 0 : -ENOMEM;
}

static int list_keys(struct store *store, json_t **out, struct hc_err *err)
{
    *out = json_array();
    int status = store_key_list(store, collect_key, *out);
    return status < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot read the keys") : 0;
}

static int record(struct keyring *keyring, const char *event, const json_t *detail, struct hc_err *err)
{
    hc_cleanup_free char *text = hc_json_write(detail, false);
    const char *name = json_text(detail, "name");

    int status = text ? audit_add(keyring->audit, event, name, NULL, text) : -ENOMEM;
    return status < 0 ? hc_fail_errno(err, HC_CLASS_HOST, -status, "cannot write to the audit log") : 0;
}

/* ---- create ---- */

/* Before anything is opened: a mistake must not leave a new folder behind. */
static int read_row(const struct client_line *line, struct key_row *row, struct hc_err *err)
{
    const struct {
        enum client_option option;
        const char *name;
        uint64_t *quota;
    } quotas[] = {{CLIENT_RUNS_PER_MINUTE, "runs-per-minute", &row->runs_per_minute},
                  {CLIENT_CONCURRENT, "concurrent", &row->concurrent},
                  {CLIENT_CPU_SECONDS, "cpu-seconds-per-day", &row->cpu_seconds_per_day}};
    int status = 0;

    for (size_t i = 0; status == 0 && i < sizeof quotas / sizeof *quotas; i++)
        status = client_count(line, quotas[i].option, quotas[i].name, 0, 1000000000, 0, quotas[i].quota, err);
    if (status == 0 && strlen(line->operand[1]) >= sizeof row->name)
        status = hc_fail(err, HC_CLASS_REQUEST, EINVAL, "the name of a key has at most %zu characters",
                         sizeof row->name - 1);
    row->no_compile_cache = line->value[CLIENT_NO_COMPILE_CACHE] != NULL;
    if (status == 0)
        snprintf(row->name, sizeof row->name, "%s", line->operand[1]);
    return status;
}

static int show_new(const struct cli *cli, const struct key_row *row, const char *token)
{
    json_cleanup json_t *object = key_json(row);

    if (!cli->json) {
        message_note("the key %s was made; this is its token, which is not kept and cannot be shown again", row->name);
        return printf("%s\n", token) < 0 ? message_cannot_write(-errno) : EXIT_OK;
    }
    json_object_set_new(object, "token", json_string(token));
    hc_cleanup_free char *text = hc_json_write(object, false);
    int status = text ? json_show(text) : -ENOMEM;
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* A key that the log does not know must not open anything. */
static int create_key(const struct cli *cli, const struct key_row *asked, struct keyring *keyring, struct hc_err *err)
{
    char token[STORE_TOKEN_LENGTH + 1];
    struct key_row row = *asked;

    int status = store_key_create(keyring->store, &row, token, err);
    if (status < 0)
        return status;
    json_cleanup json_t *detail =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:b}", "name", row.name, "prefix", row.prefix, "runs_per_minute",
                  quota_json(row.runs_per_minute), "concurrent", quota_json(row.concurrent), "cpu_seconds_per_day",
                  quota_json(row.cpu_seconds_per_day), "compile_cache", !row.no_compile_cache);
    status = record(keyring, "key_created", detail, err);
    if (status < 0) {
        store_key_revoke(keyring->store, row.name, NULL);
        return status;
    }
    return show_new(cli, &row, token);
}

/* ---- list and revoke ---- */

static void add_quota(struct table *table, const json_t *quota)
{
    hc_cleanup_free char *text = json_plain(quota);

    table_add(table, TABLE_PLAIN, text ? text : "");
}

static int show_table(const json_t *keys)
{
    static const char *const heads[] = {"NAME", "TOKEN", "RUNS/MIN", "CONCURRENT", "CPU S/DAY", "CREATED", "USED", ""};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    struct table table;
    char when[32];

    table_start(&table, COLUMNS, table_colour(STDOUT_FILENO));
    for (size_t i = 0; i < COLUMNS; i++)
        table_add(&table, TABLE_HEAD, heads[i]);
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *key = json_array_get(keys, i);
        const char *revoked = json_text(key, "revoked_at");
        char prefix[24], note[64] = "";
        snprintf(prefix, sizeof prefix, "%s…", json_text(key, "prefix"));
        table_add(&table, revoked[0] ? TABLE_DIM : TABLE_PLAIN, json_text(key, "name"));
        table_add(&table, TABLE_DIM, prefix);
        add_quota(&table, json_object_get(key, "runs_per_minute"));
        add_quota(&table, json_object_get(key, "concurrent"));
        add_quota(&table, json_object_get(key, "cpu_seconds_per_day"));
        table_add(&table, TABLE_PLAIN, client_time(json_text(key, "created_at"), when, sizeof when));
        table_add(&table, TABLE_PLAIN, client_time(json_text(key, "used_at"), when, sizeof when));
        if (json_is_false(json_object_get(key, "compile_cache")))
            snprintf(note, sizeof note, "no compile cache");
        if (revoked[0])
            snprintf(note, sizeof note, "revoked %s", client_time(revoked, when, sizeof when));
        table_add(&table, TABLE_WARN, note);
    }
    return table_print(&table);
}

static int list_them(const struct cli *cli, struct keyring *keyring, struct hc_err *err)
{
    json_cleanup json_t *keys = NULL;

    int status = list_keys(keyring->store, &keys, err);
    if (status < 0)
        return status;
    hc_cleanup_free char *text = cli->json ? hc_json_write(keys, false) : NULL;
    status = !cli->json ? show_table(keys) : text ? json_show(text) : -ENOMEM;
    return status < 0 ? message_cannot_write(status) : EXIT_OK;
}

/* The nearest name of a key in force, as the remedy. */
static void suggest_name(struct keyring *keyring, const char *name, struct hc_err *err)
{
    enum { MOST = 256 };
    const char *names[MOST];
    json_cleanup json_t *keys = NULL;
    size_t count = 0;

    if (list_keys(keyring->store, &keys, NULL) < 0)
        return;
    for (size_t i = 0; i < json_array_size(keys) && count < MOST; i++)
        if (!json_text(json_array_get(keys, i), "revoked_at")[0])
            names[count++] = json_text(json_array_get(keys, i), "name");
    const char *nearest = hc_suggest(name, names, count);
    if (nearest)
        hc_err_remedy(err, "did you mean %s?", nearest);
    else
        hc_err_remedy(err, "hotcell key list shows those there are");
}

static int revoke_key(const struct cli *cli, const char *name, struct keyring *keyring, struct hc_err *err)
{
    int status = store_key_revoke(keyring->store, name, err);
    if (status == -ENOENT)
        suggest_name(keyring, name, err);
    if (status < 0)
        return status;
    json_cleanup json_t *detail = json_pack("{s:s}", "name", name);
    status = record(keyring, "key_revoked", detail, err);
    if (status < 0)
        return status;
    if (cli->json)
        printf("{\"name\":\"%s\",\"revoked\":true}\n", name);
    else
        message_note("the key %s was revoked", name);
    return EXIT_OK;
}

/* ---- which ---- */

static const struct {
    const char *word;
    enum state_use use;
} ACTS[] = {{"create", STATE_MAKE}, {"list", STATE_READ}, {"revoke", STATE_CHANGE}};

enum { ACT_COUNT = sizeof ACTS / sizeof *ACTS };

static int unknown_act(const char *word, struct hc_err *err)
{
    const char *words[ACT_COUNT];

    for (size_t i = 0; i < ACT_COUNT; i++)
        words[i] = ACTS[i].word;
    if (word[0])
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell key cannot \"%s\"", word);
    else
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell key needs a word that says what to do");
    const char *nearest = hc_suggest(word, words, ACT_COUNT);
    if (nearest)
        return hc_err_remedy(err, "did you mean \"hotcell key %s\"?", nearest);
    return hc_err_remedy(err, "key create NAME, key list, or key revoke NAME");
}

static int check_words(const struct client_line *line, enum state_use *use, struct hc_err *err)
{
    const char *word = line->operands > 0 ? line->operand[0] : "";
    size_t i = 0;

    while (i < ACT_COUNT && strcmp(ACTS[i].word, word) != 0)
        i++;
    if (i == ACT_COUNT)
        return unknown_act(word, err);
    *use = ACTS[i].use;
    if (*use != STATE_READ && line->operands != 2)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell key %s takes one name: hotcell key %s NAME", word, word);
    if (*use == STATE_READ && line->operands != 1)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "hotcell key list takes no arguments, but there is \"%s\"",
                       line->operand[1]);
    return 0;
}

int client_key(struct cli *cli, const struct client_line *line)
{
    struct keyring keyring = {0};
    struct key_row row = {0};
    struct hc_err err = {0};
    enum state_use use = STATE_READ;

    int status = check_words(line, &use, &err);
    if (status == 0 && use != STATE_READ)
        status = read_row(line, &row, &err);
    if (status == 0)
        status = keyring_open(line, use, &keyring, &err);
    if (status == 0 && use == STATE_READ)
        status = list_them(cli, &keyring, &err);
    else if (status == 0)
        status = use == STATE_MAKE ? create_key(cli, &row, &keyring, &err) : revoke_key(cli, row.name, &keyring, &err);
    keyring_close(&keyring);
    return status < 0 ? message_error(cli, &err) : status;
}
