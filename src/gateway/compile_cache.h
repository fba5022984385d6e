/*
 * Compiles that were done before. What a language's compile stage left in its cell is kept in memory, under a key made
 * of everything that decides what a compile does, so that the same compile need not be done again: the program then
 * starts in a fresh cell that has the same files.
 *
 * It is a tenant's own: no key of one tenant is ever equal to one of another. It is gone when the gateway is.
 */
#ifndef HC_GATEWAY_COMPILE_CACHE_H
#define HC_GATEWAY_COMPILE_CACHE_H

#include "run/drive.h"
#include "run/plan.h"
#include "store/sha256.h"

enum { COMPILE_CACHE_ENTRIES = 512 };

struct compile_cache;

struct compile_key {
    unsigned char hash[SHA256_SIZE];
};

struct compile_cache_stats {
    uint64_t entries, bytes, hits, misses; /* hits and misses of compiles that may be kept */
};

struct compile_cache *compile_cache_new(void); /* NULL: out of memory */
void compile_cache_free(struct compile_cache *cache);

/* The key of a plan's compile stage for a tenant. false: it has none that could be kept. That is so without a compile
 * stage of the language's own; where other commands run before it, or a host folder is mounted, whose contents no key
 * covers; with a writable root, of which only a part is collected; and where the request says so. */
bool compile_cache_key(const struct plan *plan, const char *tenant, struct compile_key *key);

/* What is kept under the key, or NULL; it is valid until the next call. Counts as a use. */
const struct drive_kept *compile_cache_find(struct compile_cache *cache, const char *tenant,
                                            const struct compile_key *key);
/* Notes that the key was not found. Whether it was seen before: most programs are compiled once, so it is the second
 * time that makes one worth keeping. */
bool compile_cache_seen(struct compile_cache *cache, const struct compile_key *key);
/* The most that one entry may have, in a cache of `size` bytes. */
uint64_t compile_cache_entry_limit(uint64_t size);
/* Keeps it, and drops others until all of it is within `size`: of the tenant that holds the most, what was used least
 * lately. So a tenant that floods the cache loses its own. Takes files->fd; copies the rest. Without memory nothing is
 * kept. */
void compile_cache_add(struct compile_cache *cache, const char *tenant, const struct compile_key *key,
                       struct snapshot *files, const struct capture *output, uint64_t size);
void compile_cache_trim(struct compile_cache *cache, uint64_t size); /* to this size; 0: everything goes */
void compile_cache_stats(const struct compile_cache *cache, struct compile_cache_stats *stats);

#endif
