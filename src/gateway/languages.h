/*
 * The languages of a server: read when the gateway starts, and again when it is reloaded; their versions are asked for
 * inside cells (never on the host) once the warden is up, one after another, and then kept. plan_make finds them
 * through config->languages, so a run touches no language file.
 */
#ifndef HC_GATEWAY_LANGUAGES_H
#define HC_GATEWAY_LANGUAGES_H

#include "gateway/gateway.h"

/* Reads them all, looks at what is installed, and sets config->languages and config->definitions. */
int catalogue_new(struct config *config, struct catalogue **out, struct hc_err *err);
void catalogue_free(struct catalogue *catalogue); /* after the link, before the loop; NULL is fine */
/* Reads them again, for a configuration that was read later; the one before it is of no use any more. On failure all
 * stays as it was. */
int catalogue_reload(struct catalogue *catalogue, struct config *config, struct hc_err *err);
/* By name or alias, case and spaces do not matter. NULL: unknown. */
const struct language *catalogue_find(const struct catalogue *catalogue, const char *name);
/* GET /v1/languages: [{"name","title","aliases","version","extension","start","available","package"}…]. malloc'ed;
 * NULL: out of memory. */
char *catalogue_json(const struct catalogue *catalogue, const struct config *config);
const char *catalogue_version(const struct catalogue *catalogue, const char *name); /* "" while not known */
/* The names that are available, "python, ruby, …". */
void catalogue_list(const struct catalogue *catalogue, char *text, size_t size);
/* When the warden is up: finds the versions that are not known yet. */
void catalogue_probe(struct gateway *gateway);

/* Tells the keeper, once, that a language is in use: what can be prepared for it then is. */
void catalogue_used(struct catalogue *catalogue, const struct language *language);

#endif
