/* The log, on stderr: lines for people, or a JSON object a line for machines. Library code does not log; programs do.
 * How to log is the one mutable global of the project. */
#ifndef HC_BASE_LOG_H
#define HC_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum hc_log_level { HC_LOG_ERROR, HC_LOG_WARNING, HC_LOG_INFO, HC_LOG_DEBUG };

void hc_log_set_level(enum hc_log_level level);
/* By its word; false: there is no such level. */
bool hc_log_set_level_word(const char *word);
void hc_log_set_json(bool json);
/* As the configuration says it ([log] level and format): format is text, json, or auto, which is text on a terminal. */
void hc_log_configure(const char *level, const char *format);
void hc_log(enum hc_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One event with its facts, in their order: `message name=value …`, or members of the object. */
struct hc_log_field {
    const char *name;
    const char *text; /* NULL: it is the number */
    double number;
};
void hc_log_event(enum hc_log_level level, const char *message, const struct hc_log_field *fields, size_t count);

#endif
