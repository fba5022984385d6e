/* Sessions of the Model Context Protocol, as its versions until 2025-11-25 have them. */
#include "gateway/mcp.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct mcp {
    struct mcp_session *sessions; /* the most recently used is not in a known place: there are few */
    size_t count;
};

int mcp_new(struct mcp **out, struct hc_err *err)
{
    struct mcp *mcp = calloc(1, sizeof *mcp);
    if (mcp == NULL)
        return hc_fail(err, HC_CLASS_HOST, ENOMEM, "there is no memory for sessions");
    *out = mcp;
    return 0;
}

static void forget(struct mcp *mcp, struct mcp_session *session)
{
    for (struct mcp_session **at = &mcp->sessions; *at != NULL; at = &(*at)->next) {
        if (*at != session)
            continue;
        *at = session->next;
        mcp->count--;
        free(session);
        return;
    }
}

void mcp_free(struct mcp *mcp)
{
    if (mcp == NULL)
        return;
    while (mcp->sessions != NULL)
        forget(mcp, mcp->sessions);
    free(mcp);
}

size_t mcp_session_count(const struct mcp *mcp)
{
    return mcp->count;
}

/* Forgets the longest unused of a tenant's, or of all (NULL), where there are `limit` of them; one with calls under way
 * is in use. */
static void make_room(struct mcp *mcp, const char *tenant, size_t limit)
{
    struct mcp_session *oldest = NULL;
    size_t count = 0;
    for (struct mcp_session *session = mcp->sessions; session != NULL; session = session->next) {
        if (tenant != NULL && strcmp(session->tenant, tenant) != 0)
            continue;
        count++;
        if (session->calls == NULL && (oldest == NULL || session->used_at < oldest->used_at))
            oldest = session;
    }
    if (count >= limit && oldest != NULL)
        forget(mcp, oldest);
}

struct mcp_session *mcp_session_new(struct mcp *mcp, const char *tenant, const struct mcp_version *version)
{
    unsigned char bytes[16];
    make_room(mcp, tenant, MCP_SESSIONS_TENANT);
    make_room(mcp, NULL, MCP_SESSIONS);
    if (mcp->count >= MCP_SESSIONS || getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return NULL;
    struct mcp_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    size_t used = (size_t)snprintf(session->id, sizeof session->id, "mcp_");
    for (size_t i = 0; i < sizeof bytes; i++)
        used += (size_t)snprintf(session->id + used, sizeof session->id - used, "%02x", bytes[i]);
    snprintf(session->tenant, sizeof session->tenant, "%s", tenant);
    session->version = version;
    session->used_at = hc_now();
    session->next = mcp->sessions;
    mcp->sessions = session;
    mcp->count++;
    return session;
}

struct mcp_session *mcp_session_find(struct mcp *mcp, const char *tenant, const char *id)
{
    for (struct mcp_session *session = mcp->sessions; session != NULL; session = session->next) {
        if (strcmp(session->id, id) != 0 || strcmp(session->tenant, tenant) != 0)
            continue;
        session->used_at = hc_now();
        return session;
    }
    return NULL;
}

void mcp_session_end(struct mcp *mcp, struct mcp_session *session)
{
    while (session->calls != NULL)
        mcp_call_answer(session->calls,
                        mcp_error(session->calls->id, MCP_INVALID_REQUEST, "the session was ended", NULL));
    forget(mcp, session);
}
