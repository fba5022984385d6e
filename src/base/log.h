/* The log, on stderr. Library code does not log; programs do. The level is the one mutable global of the project. */
#ifndef HC_BASE_LOG_H
#define HC_BASE_LOG_H

enum hc_log_level { HC_LOG_ERROR, HC_LOG_WARNING, HC_LOG_INFO, HC_LOG_DEBUG };

void hc_log_set_level(enum hc_log_level level);
void hc_log(enum hc_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
