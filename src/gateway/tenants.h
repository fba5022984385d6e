/*
 * Tenants: whose key it is, and how much of its quota is left. Keys are kept hashed (SHA-256 of 256 random bits needs
 * no salt or stretching); comparing is constant-time. Keys made or revoked by the command line are noticed at once
 * (store_keys_version).
 */
#ifndef HC_GATEWAY_TENANTS_H
#define HC_GATEWAY_TENANTS_H

#include "gateway/gateway.h"

int tenants_new(struct gateway *gateway, struct tenants **out, struct hc_err *err);
void tenants_free(struct tenants *tenants);
/* Whether a key was ever made here. When all of them are revoked, keys are still needed: revoking closes doors. */
bool tenants_have_keys(struct tenants *tenants);
/* Whether one of them opens a door. */
bool tenants_have_key_in_force(struct tenants *tenants);
/* By the Authorization header (Bearer) or X-API-Key. 0 and a filled caller; -EACCES: no key, a wrong or a revoked one.
 */
int tenants_identify(struct tenants *tenants, const struct http_request *request, struct caller *caller);

/* An audit entry for a request that was turned away (event: unauthorized, request_refused). A flood of them fills no
 * disk: past a few in a minute they are counted, and the next entry says how many were left out. */
void tenants_note_refusal(struct tenants *tenants, const struct http_request *request, const char *event,
                          const char *why);

/* The same for what did not become a request: two lengths, a path that climbs, more headers than there may be. */
void tenants_note_nonsense(struct tenants *tenants, const char *peer, int status, const char *why);

/* Whether compiles of this tenant may be kept (gateway/compile_cache.h). */
bool tenants_may_cache(struct tenants *tenants, const char *name);

/* Quotas of runs. 0, or -EDQUOT with an error that names the quota and *retry_seconds. Begin counts one run against
 * runs_per_minute and concurrent; end gives the concurrent one back and counts the CPU time it used. */
int tenants_run_begin(struct tenants *tenants, const char *name, unsigned *retry_seconds, struct hc_err *err);
/* Whether a denial by a quota is to be written to the audit log: once a minute for each tenant, however often it asks.
 */
bool tenants_denial_is_news(struct tenants *tenants, const char *name);
void tenants_run_end(struct tenants *tenants, const char *name, uint64_t cpu_us);

#endif
