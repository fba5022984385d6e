// The TypeScript compiler, waiting. The script that compiles is the one of languages/typescript.toml: it comes with the program, and runs
// here as it does in a Node of its own. `require` gives it the compiler that was loaded before there was a program.
'use strict';

const fs = require('fs');
const path = require('path');

require(path.join(fs.realpathSync('/usr/bin/tsc'), '../../lib/typescript.js'));

// The argument block: the numbers of arguments and variables, the working directory, the arguments, …
const words = fs.readFileSync('/.hotcell/program').toString().split('\0');
const [, , , , script, ...sources] = words.slice(3, 3 + Number(words[0])); // sh -c … sh script sources
process.chdir(words[2]);
process.argv.splice(1, process.argv.length, ...sources);
new Function('require', script)(require);
process.exit();
