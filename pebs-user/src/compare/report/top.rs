//! Keeps the largest of a stream.

/// The `limit` largest values by their key; of equal keys those that came first.
#[derive(Debug)]
pub(super) struct Top<T> {
    limit: usize,
    floor: Option<i64>,
    kept: Vec<(i64, T)>,
}

impl<T> Top<T> {
    /// An empty list.
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            limit,
            floor: None,
            kept: Vec::new(),
        }
    }

    /// Offers a value, which is only computed if it may be kept.
    ///
    /// Cost: amortized O(log limit), nothing for most values of a long stream.
    pub(super) fn offer(&mut self, key: i64, value: impl FnOnce() -> T) {
        if self.limit == 0 || self.floor.is_some_and(|floor| key <= floor) {
            return;
        }
        self.kept.push((key, value()));
        if self.kept.len() >= 2 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        // The sort is stable: among equal keys the first stays first.
        self.kept.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        self.kept.truncate(self.limit);
        if self.kept.len() == self.limit {
            self.floor = self.kept.last().map(|(key, _)| *key);
        }
    }

    /// The values, largest first.
    pub(super) fn into_sorted(mut self) -> Vec<T> {
        self.cut();
        self.kept.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(limit: usize, keys: impl IntoIterator<Item = i64>) -> Vec<(i64, usize)> {
        let mut top = Top::new(limit);
        for (order, key) in keys.into_iter().enumerate() {
            top.offer(key, || (key, order));
        }
        top.into_sorted()
    }

    /// The largest are kept in order, whatever the order they come in.
    #[test]
    fn largest() {
        assert_eq!(top(3, 0..100), [(99, 99), (98, 98), (97, 97)]);
        assert_eq!(top(3, (0..100).rev()), [(99, 0), (98, 1), (97, 2)]);
        assert_eq!(top(3, [5, 5, 5, 5, 5, 9, 5, 5]), [(9, 5), (5, 0), (5, 1)]);
        assert_eq!(top(3, [2, 1]), [(2, 0), (1, 1)]);
        assert_eq!(top(0, 0..9), []);
    }
}
