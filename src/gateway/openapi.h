/* The contract, as a document: src/gateway/openapi.json, put into the program by the build. */
#ifndef HC_GATEWAY_OPENAPI_H
#define HC_GATEWAY_OPENAPI_H

#include <stddef.h>

extern const char openapi_text[];
extern const size_t openapi_length;

#endif
