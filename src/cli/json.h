/* The library's JSON, read back to make tables of it. Never on the path of a plain run. */
#ifndef HC_CLI_JSON_H
#define HC_CLI_JSON_H

#include <jansson.h>

void json_release_ptr(json_t **value);
#define json_cleanup __attribute__((cleanup(json_release_ptr)))

/* Writes JSON text to stdout: as it is, or indented where a person looks on. 0 or -errno. */
int json_show(const char *text);
/* The text of a string member, "" for null or absent. Borrowed. */
const char *json_text(const json_t *object, const char *key);
/* Any value as one line for people: strings bare, lists separated by commas, null as "-". malloc'ed; NULL: out of
 * memory. */
char *json_plain(const json_t *value);

#endif
