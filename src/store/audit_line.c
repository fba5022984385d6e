/*
 * One line of the audit log, taken apart. The line may come from anyone: everything is checked before it is used, and
 * what is accepted could have been written by audit.c.
 */
#include "store/audit_line.h"
#include "text/json.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char BEGIN[] = "{\"n\":";
/* ,"hash":"<hex>"} */
enum { HASH_PART = sizeof ",\"hash\":\"\"}" - 1 + SHA256_HEX };

static const char *const EVENTS[] = {
    "mount_denied",    "request_refused",   "unauthorized",    "limit_hit",       "key_created",    "key_revoked",
    "blocked_call",    "isolation_weak",    "server_started",  "server_stopped",  "warden_died",    "gateway_died",
    "config_reloaded", "mcp_server_ended",  AUDIT_TORN,        "sandbox_created", "sandbox_paused", "sandbox_resumed",
    "sandbox_failed",  "sandbox_recovered", "sandbox_deleted", "sandbox_expired", "volume_created", "volume_removed",
};

bool audit_event_known(const char *event)
{
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++)
        if (strcmp(EVENTS[i], event) == 0)
            return true;
    return false;
}

static bool is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

bool audit_line_whole(const char *line, size_t length)
{
    if (length < sizeof BEGIN - 1 + HASH_PART || memcmp(line, BEGIN, sizeof BEGIN - 1) != 0)
        return false;
    const char *end = line + length - HASH_PART;
    return memcmp(end, ",\"hash\":\"", 9) == 0 && is_hex(end + 9, SHA256_HEX) &&
           memcmp(end + 9 + SHA256_HEX, "\"}", 2) == 0;
}

/* A string that is a hash, copied. */
static bool take_hash(const json_t *value, char *text)
{
    if (!json_is_string(value) || json_string_length(value) != SHA256_HEX ||
        !is_hex(json_string_value(value), SHA256_HEX))
        return false;
    memcpy(text, json_string_value(value), SHA256_HEX + 1);
    return true;
}

static bool string_or_null(const json_t *value)
{
    return json_is_string(value) || json_is_null(value);
}

static bool take_torn(const json_t *detail, struct audit_line *out)
{
    const json_t *bytes = json_object_get(detail, "bytes");
    if (!json_is_integer(bytes) || json_integer_value(bytes) <= 0)
        return false;
    out->torn = true;
    out->torn_bytes = (uint64_t)json_integer_value(bytes);
    return take_hash(json_object_get(detail, "sha256"), out->torn_hash);
}

static const char *take_members(const json_t *entry, struct audit_line *out)
{
    static const char *const order[] = {"n", "at", "event", "tenant", "run", "detail", "prev", "hash"};
    const char *key;
    const json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)entry, key, value)
    {
        if (count >= sizeof order / sizeof *order || strcmp(key, order[count]) != 0)
            return "its members are not those of an entry";
        count++;
    }
    if (count != sizeof order / sizeof *order)
        return "its members are not those of an entry";
    const json_t *n = json_object_get(entry, "n"), *event = json_object_get(entry, "event");
    const json_t *detail = json_object_get(entry, "detail");
    if (!json_is_integer(n) || json_integer_value(n) <= 0)
        return "its number is not one";
    out->n = (uint64_t)json_integer_value(n);
    if (!json_is_string(event) || !json_is_string(json_object_get(entry, "at")))
        return "it lacks its event or its time";
    if (!string_or_null(json_object_get(entry, "tenant")) || !string_or_null(json_object_get(entry, "run")))
        return "tenant and run must be text";
    if (!json_is_object(detail) && !json_is_null(detail))
        return "its detail is not an object";
    if (!take_hash(json_object_get(entry, "prev"), out->prev) || !take_hash(json_object_get(entry, "hash"), out->hash))
        return "its hashes are not hashes";
    if (strcmp(json_string_value(event), AUDIT_TORN) == 0 && !take_torn(detail, out))
        return "it does not say what was torn";
    return NULL;
}

int audit_line_parse(const char *line, size_t length, struct audit_line *out, const char **why)
{
    json_t *entry hc_cleanup_json = NULL;
    struct hc_err err = {0};
    struct audit_line parsed = {0};
    *why = "it is not an entry";
    if (!audit_line_whole(line, length))
        return -EBADMSG;
    *why = "it is not JSON";
    if (hc_json_read(line, length, AUDIT_DEPTH, &entry, &err) < 0)
        return -EBADMSG;
    *why = json_is_object(entry) ? take_members(entry, &parsed) : "it is not an object";
    if (*why != NULL)
        return -EBADMSG;
    /* What was hashed ends where the text says so: the member that was read must be that text. */
    parsed.hashed = length - HASH_PART;
    *why = "its hash is not at its end";
    if (memcmp(line + length - 2 - SHA256_HEX, parsed.hash, SHA256_HEX) != 0)
        return -EBADMSG;
    *out = parsed;
    return 0;
}

bool audit_line_true(const char *line, const struct audit_line *parsed)
{
    unsigned char hash[SHA256_SIZE];
    char text[SHA256_HEX + 1];
    if (sha256(line, parsed->hashed, hash) < 0)
        return false;
    sha256_hex(hash, text);
    return memcmp(text, parsed->hash, SHA256_HEX) == 0;
}
