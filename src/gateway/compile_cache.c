/*
 * See compile_cache.h. Why a guest cannot put anything into it that another compile would not have made: the files are
 * read by the helper in the cell, after the compile stage has ended and before anything of the guest's runs, so what is
 * kept was made by the compiler from what the key covers. What a compile does besides (a time in its output, say) is
 * kept with it.
 *
 * What always holds: an entry is in the list of one tenant, newest use first; `bytes` and `count` are the sums over all
 * of them; a tenant without entries has no list.
 */
#include "gateway/compile_cache.h"

#include "base/buf.h"
#include "base/fd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    KEY_BYTES = 16 << 20,     /* of what a key is made of, besides the files */
    FILES_BYTES = 16 << 20,   /* of a request: more is not looked at, for hashing it holds up everybody */
    OUTPUT_BYTES = 256 << 10, /* of a compile that is kept */
    SEEN_KEYS = 4096,
};

struct entry {
    struct entry *newer, *older;
    struct compile_key key;
    struct drive_kept kept;
    uint64_t bytes;
};

struct holder {
    struct holder *next;
    char tenant[64];
    struct entry *newest, *oldest;
    uint64_t bytes;
};

struct compile_cache {
    struct holder *holders;
    uint64_t bytes, count, hits, misses;
    struct compile_key seen[SEEN_KEYS]; /* each at the place that its first bytes say */
};

struct compile_cache *compile_cache_new(void)
{
    return calloc(1, sizeof(struct compile_cache));
}

/* ---- keys ---- */

static void add_bytes(struct hc_buf *buf, const void *data, size_t length)
{
    uint64_t size = length;
    hc_buf_add(buf, &size, sizeof size);
    hc_buf_add(buf, data, length);
}

static void add_text(struct hc_buf *buf, const char *text)
{
    add_bytes(buf, text, strlen(text));
}

static void add_words(struct hc_buf *buf, const struct words *words)
{
    hc_buf_add(buf, &words->count, sizeof words->count);
    for (size_t i = 0; i < words->count; i++)
        add_text(buf, words->item[i]);
}

static int add_files(struct hc_buf *buf, int fd)
{
    struct stat st;
    unsigned char hash[SHA256_SIZE];
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) < 0 || st.st_size > FILES_BYTES || sha256_file(fd, 0, st.st_size, hash) < 0)
        return -1;
    return hc_buf_add(buf, hash, sizeof hash);
}

static bool may_be_kept(const struct plan *plan)
{
    const struct request *request = plan->request;
    return !request->no_cache && plan->language && plan->language->compile.present && request->stage_count == 0 &&
           plan->stage_count > 0 && plan->stages[0].compile && plan->cell.mount_count == 0 &&
           !(plan->cell.flags & CELL_WRITABLE_ROOT);
}

bool compile_cache_key(const struct plan *plan, const char *tenant, struct compile_key *key)
{
    if (!may_be_kept(plan))
        return false;
    const struct plan_stage *stage = &plan->stages[0];
    struct hc_buf buf = HC_BUF_INIT(KEY_BYTES);
    add_text(&buf, "hotcell compile 1");
    add_text(&buf, tenant);
    add_text(&buf, plan->language->name);
    add_text(&buf, plan->cell.work_dir);
    add_text(&buf, plan->cell.hostname);
    add_words(&buf, &stage->argv);
    add_words(&buf, &plan->env);
    add_bytes(&buf, stage->limits.value, sizeof stage->limits.value);
    language_identity(plan->language, &buf);
    uint64_t apart = plan->request->code_apart;
    hc_buf_add(&buf, &apart, sizeof apart);
    int result = add_files(&buf, plan->files);
    if (result == 0)
        result = hc_buf_status(&buf);
    if (result == 0)
        result = sha256(buf.data, buf.length, key->hash);
    hc_buf_release(&buf);
    return result == 0;
}

/* ---- entries ---- */

static bool is_same(const struct compile_key *a, const struct compile_key *b)
{
    return memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

static struct holder **holder_of(struct compile_cache *cache, const char *tenant)
{
    struct holder **link = &cache->holders;
    while (*link && strcmp((*link)->tenant, tenant) != 0)
        link = &(*link)->next;
    return link;
}

static void unlink_entry(struct holder *holder, struct entry *entry)
{
    *(entry->newer ? &entry->newer->older : &holder->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &holder->oldest) = entry->newer;
}

static void link_newest(struct holder *holder, struct entry *entry)
{
    entry->newer = NULL;
    entry->older = holder->newest;
    *(holder->newest ? &holder->newest->newer : &holder->oldest) = entry;
    holder->newest = entry;
}

static void entry_free(struct entry *entry)
{
    snapshot_release(&entry->kept.files);
    capture_release(&entry->kept.output);
    free(entry);
}

/* The holder goes with its last entry. */
static void drop(struct compile_cache *cache, struct holder **link, struct entry *entry)
{
    struct holder *holder = *link;
    unlink_entry(holder, entry);
    holder->bytes -= entry->bytes;
    cache->bytes -= entry->bytes;
    cache->count--;
    entry_free(entry);
    if (holder->newest)
        return;
    *link = holder->next;
    free(holder);
}

static struct entry *find(const struct holder *holder, const struct compile_key *key)
{
    struct entry *entry = holder->newest;
    while (entry && !is_same(&entry->key, key))
        entry = entry->older;
    return entry;
}

static struct holder **largest(struct compile_cache *cache)
{
    struct holder **most = &cache->holders;
    for (struct holder **link = &cache->holders; *link; link = &(*link)->next)
        if ((*link)->bytes > (*most)->bytes)
            most = link;
    return most;
}

static void trim(struct compile_cache *cache, uint64_t size, uint64_t count)
{
    while (cache->holders && (cache->bytes > size || cache->count > count)) {
        struct holder **link = largest(cache);
        drop(cache, link, (*link)->oldest);
    }
}

void compile_cache_trim(struct compile_cache *cache, uint64_t size)
{
    trim(cache, size, COMPILE_CACHE_ENTRIES);
}

void compile_cache_free(struct compile_cache *cache)
{
    if (!cache)
        return;
    trim(cache, 0, 0);
    free(cache);
}

const struct drive_kept *compile_cache_find(struct compile_cache *cache, const char *tenant,
                                            const struct compile_key *key)
{
    struct holder *holder = *holder_of(cache, tenant);
    struct entry *entry = holder ? find(holder, key) : NULL;
    if (!entry) {
        cache->misses++;
        return NULL;
    }
    cache->hits++;
    unlink_entry(holder, entry);
    link_newest(holder, entry);
    return &entry->kept;
}

bool compile_cache_seen(struct compile_cache *cache, const struct compile_key *key)
{
    struct compile_key *place = &cache->seen[(key->hash[0] << 8 | key->hash[1]) % SEEN_KEYS];
    bool seen = is_same(place, key);
    *place = *key;
    return seen;
}

uint64_t compile_cache_entry_limit(uint64_t size)
{
    return size / 4;
}

static struct entry *entry_new(const struct compile_key *key, struct snapshot *files, const struct capture *output)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->key = *key;
    snapshot_init(&entry->kept.files);
    capture_init(&entry->kept.output, OUTPUT_BYTES);
    if (capture_add(&entry->kept.output, output->head, output->head_length) < 0) {
        entry_free(entry);
        return NULL;
    }
    entry->kept.files = *files;
    files->fd = -1;
    entry->bytes = sizeof *entry + files->size + output->head_length;
    return entry;
}

static struct holder *holder_make(struct compile_cache *cache, const char *tenant)
{
    struct holder **link = holder_of(cache, tenant);
    if (!*link && (*link = calloc(1, sizeof **link)))
        snprintf((*link)->tenant, sizeof(*link)->tenant, "%s", tenant);
    return *link;
}

void compile_cache_add(struct compile_cache *cache, const char *tenant, const struct compile_key *key,
                       struct snapshot *files, const struct capture *output, uint64_t size)
{
    bool whole = capture_missing(output) == 0 && output->head_length <= OUTPUT_BYTES;
    if (!whole || files->size > compile_cache_entry_limit(size))
        return;
    struct holder **link = holder_of(cache, tenant);
    struct entry *older = *link ? find(*link, key) : NULL;
    if (older) /* two runs compiled it at the same time */
        drop(cache, link, older);
    struct entry *entry = entry_new(key, files, output);
    if (!entry)
        return;
    struct holder *holder = holder_make(cache, tenant);
    if (!holder) {
        entry_free(entry);
        return;
    }
    link_newest(holder, entry);
    holder->bytes += entry->bytes;
    cache->bytes += entry->bytes;
    cache->count++;
    compile_cache_trim(cache, size);
}

void compile_cache_stats(const struct compile_cache *cache, struct compile_cache_stats *stats)
{
    *stats = (struct compile_cache_stats){
        .entries = cache->count, .bytes = cache->bytes, .hits = cache->hits, .misses = cache->misses};
}
