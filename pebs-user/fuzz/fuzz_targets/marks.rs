#![no_main]
pebs_fuzz::target!(marks);
