/*
 * Keys. A token is 256 random bits, so its SHA-256 needs no salt and no stretching; the token itself is in nobody's
 * memory but the caller's, once. A name is a tenant: it may have one key in force, and those that were revoked.
 */
#include "base/fd.h"
#include "store/internal.h"
#include "store/sha256.h"
#include "text/base64.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define SECOND INT64_C(1000000)

enum { TOKEN_BYTES = 32 };

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND + now.tv_nsec / 1000;
}

void store_key_hash(const char *token, unsigned char hash[32])
{
    /* No key has this hash: store_key_create does not go on without a true one. */
    if (sha256(token, strlen(token), hash) < 0)
        memset(hash, 0, SHA256_SIZE);
}

bool store_key_equal(const unsigned char a[32], const unsigned char b[32])
{
    return CRYPTO_memcmp(a, b, SHA256_SIZE) == 0;
}

static int make_token(char *token, unsigned char hash[32], struct hc_err *err)
{
    unsigned char bytes[TOKEN_BYTES];
    size_t length = 0;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return hc_fail_errno(err, HC_CLASS_HOST, errno, "no random bytes");
    char *text = hc_base64_encode(bytes, sizeof bytes, &length);
    explicit_bzero(bytes, sizeof bytes);
    if (text == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "out of memory");
    snprintf(token, STORE_TOKEN_LENGTH + 1, "hc_%s", text); /* cut before the padding */
    explicit_bzero(text, length);
    free(text);
    for (char *c = token; *c != '\0'; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    if (sha256(token, strlen(token), hash) < 0)
        return hc_fail(err, HC_CLASS_HOST, EIO, "OpenSSL does not give SHA-256");
    return 0;
}

static int check_name(const char *name, struct hc_err *err)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (length == 0 || name[length] != '\0') {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"%s\" cannot be the name of a key", name);
        hc_err_field(err, "name");
        return hc_err_remedy(err, "use letters, digits, '_', '.' and '-'");
    }
    if (strcmp(name, "local") == 0) {
        hc_fail(err, HC_CLASS_REQUEST, EINVAL, "\"local\" is the name of those who need no key");
        return hc_err_field(err, "name");
    }
    return 0;
}

struct key_task {
    struct task task;
    const struct key_row *row; /* to insert; or: */
    const char *name;          /* to revoke */
    int64_t when;
};

static int apply_changed(struct store *store)
{
    struct binding binding = bind_start(&store->writer, WRITE_KEYS_CHANGED);
    return bind_run(&binding);
}

static int apply_create(struct store *store, struct task *task)
{
    const struct key_row *row = ((struct key_task *)task)->row;
    struct binding binding = bind_start(&store->writer, WRITE_KEY_INSERT);
    bind_text(&binding, row->name);
    bind_text(&binding, row->prefix);
    bind_blob(&binding, row->hash, sizeof row->hash);
    bind_number(&binding, (int64_t)row->runs_per_minute);
    bind_number(&binding, (int64_t)row->concurrent);
    bind_number(&binding, (int64_t)row->cpu_seconds_per_day);
    bind_number(&binding, row->created_at);
    bind_number(&binding, row->no_compile_cache);
    int status = bind_run(&binding);
    return status < 0 ? status : apply_changed(store);
}

int store_key_create(struct store *store, struct key_row *row, char *token, struct hc_err *err)
{
    struct key_row made = *row;
    char secret[STORE_TOKEN_LENGTH + 1];
    int status = check_name(made.name, err);
    if (status == 0)
        status = make_token(secret, made.hash, err);
    if (status < 0)
        return status;
    snprintf(made.prefix, sizeof made.prefix, "%.*s", (int)sizeof made.prefix - 1, secret);
    made.created_at = now_us();
    made.revoked_at = made.used_at = 0;
    struct key_task task = {.task = {.apply = apply_create, .bytes = sizeof task}, .row = &made};
    status = writer_wait(store, &task.task);
    if (status == -EEXIST) {
        hc_fail(err, HC_CLASS_REQUEST, EEXIST, "there is a key named \"%s\"", made.name);
        hc_err_remedy(err, "revoke it first, or choose another name");
    } else if (status < 0) {
        hc_fail_errno(err, HC_CLASS_HOST, -status, "the key cannot be written to %s", store->path);
    } else {
        memcpy(token, secret, sizeof secret);
        *row = made;
    }
    explicit_bzero(secret, sizeof secret);
    return status;
}

static int apply_revoke(struct store *store, struct task *task)
{
    const struct key_task *revoke = (struct key_task *)task;
    struct binding binding = bind_start(&store->writer, WRITE_KEY_REVOKE);
    bind_text(&binding, revoke->name);
    bind_number(&binding, revoke->when);
    int status = bind_run(&binding);
    if (status == 0 && sqlite3_changes(store->writer.db) == 0)
        return -ENOENT;
    return status < 0 ? status : apply_changed(store);
}

int store_key_revoke(struct store *store, const char *name, struct hc_err *err)
{
    struct key_task task = {.task = {.apply = apply_revoke, .bytes = sizeof task}, .name = name, .when = now_us()};
    int status = writer_wait(store, &task.task);
    if (status == -ENOENT)
        return hc_fail(err, HC_CLASS_REQUEST, ENOENT, "no key named \"%s\" is in force", name);
    if (status < 0)
        return hc_fail_errno(err, HC_CLASS_HOST, -status, "the key cannot be revoked in %s", store->path);
    return 0;
}

int store_key_list(struct store *store, store_key_fn fn, void *data)
{
    struct binding binding = bind_start(&store->reader, READ_KEYS);
    int count = 0;
    while (bind_row(&binding)) {
        sqlite3_stmt *statement = binding.statement;
        struct key_row row = {
            .runs_per_minute = (uint64_t)sqlite3_column_int64(statement, 3),
            .concurrent = (uint64_t)sqlite3_column_int64(statement, 4),
            .cpu_seconds_per_day = (uint64_t)sqlite3_column_int64(statement, 5),
            .created_at = sqlite3_column_int64(statement, 6),
            .revoked_at = sqlite3_column_int64(statement, 7),
            .used_at = sqlite3_column_int64(statement, 8),
            .no_compile_cache = sqlite3_column_int64(statement, 9) != 0,
        };
        store_column(statement, 0, row.name, sizeof row.name);
        store_column(statement, 1, row.prefix, sizeof row.prefix);
        const void *hash = sqlite3_column_blob(statement, 2);
        if (hash == NULL || sqlite3_column_bytes(statement, 2) != (int)sizeof row.hash) {
            binding.code = SQLITE_CORRUPT;
            break;
        }
        memcpy(row.hash, hash, sizeof row.hash);
        count++;
        if (fn(data, &row) != 0)
            break;
    }
    int status = bind_end(&binding);
    return status < 0 ? status : count;
}

/* The header of the write-ahead log's index, which all connections of all processes share in memory; every commit
 * changes it before it returns (sqlite.org/walformat.html, "The WAL-Index Header"; there are two copies). SQLite has it
 * mapped as long as the connection is open. NULL: it cannot be had, which costs a question. */
static const volatile void *index_header(struct store *store)
{
    sqlite3_file *file = NULL;
    volatile void *index = NULL;
    if (store->index != NULL)
        return store->index;
    if (sqlite3_file_control(store->reader.db, "main", SQLITE_FCNTL_FILE_POINTER, (void *)&file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL || file->pMethods->iVersion < 2 || file->pMethods->xShmMap == NULL)
        return NULL;
    if (file->pMethods->xShmMap(file, 0, INDEX_BYTES, 0, &index) == SQLITE_OK)
        store->index = index;
    return store->index;
}

static void copy_header(const volatile uint64_t *from, unsigned char *to)
{
    uint64_t words[INDEX_HEADER / sizeof(uint64_t)];
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < INDEX_HEADER / sizeof(uint64_t); i++)
        words[i] = from[i];
    atomic_thread_fence(memory_order_seq_cst);
    memcpy(to, words, sizeof words);
}

/* What the database says, by this connection. The header is looked at before the question: what is committed in between
 * is seen the next time, for the header differs then. A copy that was taken in the middle of a change is like no other.
 */
static bool ask_version(const struct store *store, const struct connection *connection, enum statement which,
                        struct keys_known *out)
{
    const volatile void *index = store->index;
    if (index != NULL)
        copy_header(index, out->header);
    struct binding binding = bind_start(connection, which);
    bind_text(&binding, "keys_version");
    if (bind_row(&binding))
        out->version = (uint64_t)sqlite3_column_int64(binding.statement, 0);
    bool asked = bind_end(&binding) == 0;
    out->known = asked && index != NULL && sqlite3_txn_state(connection->db, NULL) == SQLITE_TXN_NONE;
    return asked;
}

/* A commit of our own is what changes the header most often, and whoever made it has the time to ask. */
void keys_after_commit(struct store *store)
{
    struct keys_known known = {.version = 0};
    if (store->index == NULL || !ask_version(store, &store->writer, FIND_STATE, &known) || !known.known)
        return;
    pthread_mutex_lock(&store->lock);
    store->keys_committed = known;
    pthread_mutex_unlock(&store->lock);
}

/* Asked with every request. As long as nothing at all was committed, the answer is the last one. */
uint64_t store_version(struct store *store)
{
    unsigned char header[INDEX_HEADER];
    struct keys_known *keys = &store->keys;
    const volatile void *index = index_header(store);
    if (index != NULL)
        copy_header(index, header);
    if (index != NULL && keys->known && memcmp(header, keys->header, sizeof header) == 0)
        return keys->version;
    pthread_mutex_lock(&store->lock);
    struct keys_known committed = store->keys_committed;
    pthread_mutex_unlock(&store->lock);
    if (index != NULL && committed.known && memcmp(header, committed.header, sizeof header) == 0) {
        *keys = committed;
        return keys->version;
    }
    struct keys_known asked = {.version = keys->version};
    if (ask_version(store, &store->reader, READ_STATE, &asked))
        keys->version = asked.version;
    keys->known = asked.known;
    memcpy(keys->header, asked.header, sizeof keys->header);
    return keys->version;
}

struct used_task {
    struct task task;
    char name[64];
    int64_t when;
};

static int apply_used(struct store *store, struct task *task)
{
    const struct used_task *used = (struct used_task *)task;
    struct binding binding = bind_start(&store->writer, WRITE_KEY_USED);
    bind_text(&binding, used->name);
    bind_number(&binding, used->when);
    return bind_run(&binding);
}

/* Whether this key's use was written less than a minute ago; and remembers that it is now. Two names that share a slot
 * cost a write more, nothing else. */
static bool used_lately(struct store *store, const char *name, int64_t when)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    __typeof__(store->used[0]) *slot = &store->used[hash % USED_SLOTS];
    if (strcmp(slot->name, name) == 0 && when >= slot->when && when - slot->when < 60 * SECOND)
        return true;
    snprintf(slot->name, sizeof slot->name, "%s", name);
    slot->when = when;
    return false;
}

int store_key_used(struct store *store, const char *name, int64_t when)
{
    if (used_lately(store, name, when))
        return 0;
    struct used_task *copy = malloc(sizeof *copy);
    if (copy != NULL) {
        *copy = (struct used_task){.task = {.apply = apply_used, .bytes = sizeof *copy}, .when = when};
        snprintf(copy->name, sizeof copy->name, "%s", name);
    }
    return writer_submit(store, (struct task *)copy);
}
