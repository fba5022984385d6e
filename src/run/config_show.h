/* One value of the configuration as JSON. Apart from config_internal.h, because reading a configuration needs no JSON.
 */
#ifndef HC_RUN_CONFIG_SHOW_H
#define HC_RUN_CONFIG_SHOW_H

#include "run/config_internal.h"
#include "text/json.h"

/* A new reference, JSON null for what is not set; NULL: out of memory. */
json_t *config_show(const struct config *config, const struct config_key *key);

#endif
