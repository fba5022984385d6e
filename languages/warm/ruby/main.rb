nil # A zygote has this file open in the place of the program that is to come (driver.rb). It is never read.
