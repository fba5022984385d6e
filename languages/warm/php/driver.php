<?php
/*
 * The driver of PHP's zygotes. PHP reads it from stdin and runs it as the main script, under no name; auto_append_file has it run main.php after
 * it, at the same level, with no frame in between. Here fork() is called once; that call returns only in children, each of which is in its
 * cell (src/cell/warm.h). The child sets what a start derives from its arguments, environment and fds, and returns.
 *
 * What always holds: no variable, function or class is left behind, and no number of a resource is used up. Where a cold start would find
 * something that was not prepared for, the child execs PHP, which is what a cold start does.
 */
(static function () {
    $c = FFI::cdef('int open(const char *path, int flags, ...); long read(int fd, char *to, size_t size); int close(int fd);'
        . 'void zend_activate_auto_globals(void);');
    $read = static function (int $fd, int $size = 65536) use ($c): string {
        $room = FFI::new("char[$size]");
        for ($text = ''; ($length = $c->read($fd, $room, $size)) > 0;) {
            $text .= FFI::string($room, $length);
        }
        $c->close($fd);
        return $text;
    };
    if (pcntl_fork() !== 0) {
        exit(1);
    }
    $words = explode("\0", $read(3));
    $argv = array_slice($words, 3, (int) $words[0]);
    $env = [];
    foreach (array_slice($words, 3 + count($argv), (int) $words[1]) as $word) {
        [$name, $value] = explode('=', $word, 2) + [1 => null];
        if ($value !== null && strpbrk($name, ' .[') === false) { // what php_import_environment_variables leaves out
            $env[$name] ??= $value;
        }
    }
    // A first line with #! is left out of the output, in the main script only, which this was.
    if (($argv[9] ?? null) !== 'main.php' || !is_file('main.php') || str_starts_with($read($c->open('main.php', 0)), '#!')) {
        pcntl_exec($argv[0], array_slice($argv, 1), $env);
        exit(125);
    }
    $GLOBALS['argv'] = array_slice($argv, 9);
    $GLOBALS['argc'] = count($GLOBALS['argv']);
    $now = microtime(true);
    $c->zend_activate_auto_globals(); // made anew, of the new environment and arguments, where somebody names them:
    eval('$_SERVER;');                // getopt() looks at the engine's own copy of this one
    $_SERVER = array_replace($_SERVER, [
        'PHP_SELF' => 'main.php', 'SCRIPT_NAME' => 'main.php', 'SCRIPT_FILENAME' => 'main.php', 'PATH_TRANSLATED' => 'main.php',
        'REQUEST_TIME_FLOAT' => $now, 'REQUEST_TIME' => (int) $now,
    ]);
    clearstatcache();
    define('STDIN', fopen('php://stdin', 'rb'));
    define('STDOUT', fopen('php://stdout', 'wb'));
    define('STDERR', fopen('php://stderr', 'wb'));
})();
