//! Recordings in the form of `perf record -o -`, made by hand.

/// A recording being built.
pub struct Piped(pub Vec<u8>);

impl Piped {
    pub fn new() -> Self {
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(16_u64.to_ne_bytes());
        Self(bytes)
    }

    pub fn record(&mut self, (kind, misc): (u32, u16), body: &[u8]) {
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(misc.to_ne_bytes());
        self.0.extend((8 + body.len() as u16).to_ne_bytes());
        self.0.extend(body);
    }

    /// Adds a record of words.
    pub fn words(&mut self, kind: (u32, u16), words: &[u64]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.record(kind, &body);
    }

    /// Adds an event: its type, config and period, the fields of its samples, its id. `flags`: of the attr.
    pub fn attr(&mut self, what: [u64; 3], (fields, flags): (u64, u64), id: u64) {
        self.attr_that_reads(what, (fields, 0, flags), id);
    }

    /// Adds an event whose samples have counts in a read format.
    pub fn attr_that_reads(
        &mut self,
        [kind, config, period]: [u64; 3],
        (fields, format, flags): (u64, u64, u64),
        id: u64,
    ) {
        const SIZE: u64 = 136;
        let mut words = vec![kind | SIZE << 32, config, period, fields, format, flags];
        words.resize(SIZE as usize / 8, 0);
        words.push(id);
        self.words((64, 0), &words);
    }

    /// Adds a breakpoint: its type and period, the fields of its samples and flags of its attr, its access, address and
    /// length, its id.
    pub fn watch(
        &mut self,
        [kind, period]: [u64; 2],
        (fields, flags): (u64, u64),
        (access, address, length): (u64, u64, u64),
        id: u64,
    ) {
        const SIZE: u64 = 136;
        let mut words = vec![kind | SIZE << 32, 0, period, fields, 0, flags];
        words.extend([access << 32, address, length]);
        words.resize(SIZE as usize / 8, 0);
        words.push(id);
        self.words((64, 0), &words);
    }

    /// Ends a round: all rings were read.
    pub fn round(&mut self) {
        self.record((68, 0), &[]);
    }
}
