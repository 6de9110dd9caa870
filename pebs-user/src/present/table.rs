//! Tables of text that are no wider than the page.
//!
//! A row is one line; only the detail of a cell may continue below. Where columns do not fit, names are shortened
//! first, as long as they stay readable, then columns are left out, the least important first; names get the remaining
//! room.

use super::human::{columns, shorten};
use super::{Tone, toned};

/// Blanks between two columns.
const BETWEEN: usize = 2;

/// Blanks in front of each line.
const INDENT: usize = 2;

/// Width with which a cell is asked for its whole text.
const WHOLE: usize = 1_000;

/// A column: its title, and how it shrinks on a narrow page.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: String,
    is_number: bool,
    /// Width to which its cells can be shortened; `None`: not at all.
    least: Option<usize>,
    /// Columns with the highest number are left out first; 0: never.
    rank: u8,
    tone: Option<Tone>,
}

impl Column {
    /// Words, never shortened.
    pub(crate) fn words(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            is_number: false,
            least: None,
            rank: 0,
            tone: None,
        }
    }

    /// Names, which can be shortened to this width.
    pub(crate) fn names(title: impl Into<String>, least: usize) -> Self {
        Self {
            least: Some(least),
            ..Self::words(title)
        }
    }

    /// Numbers, aligned to the right and never shortened.
    pub(crate) fn number(title: impl Into<String>) -> Self {
        Self {
            is_number: true,
            ..Self::words(title)
        }
    }

    /// Left out where there is no room, before columns of a lower rank.
    pub(crate) fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    pub(crate) fn tone(self, tone: Tone) -> Self {
        Self {
            tone: Some(tone),
            ..self
        }
    }
}

/// The text of a row in a column.
pub(crate) enum Cell {
    /// A fixed text; in a column of names its middle is cut if it is too long.
    Text(String),
    /// A text as a function of the width.
    Fitted(Box<dyn Fn(usize) -> String>),
    /// A text with a detail, which goes below the row, as wide as the page, if both together are too long for the
    /// column.
    Detailed {
        text: Box<dyn Fn(usize) -> String>,
        /// Separator of the two on one line.
        joint: &'static str,
        detail: String,
    },
}

impl Cell {
    /// A text that knows how to be shorter.
    pub(crate) fn fitted(text: impl Fn(usize) -> String + 'static) -> Self {
        Self::Fitted(Box::new(text))
    }

    /// A text that can shorten itself, and a detail beside or below it.
    pub(crate) fn detailed(
        text: impl Fn(usize) -> String + 'static,
        joint: &'static str,
        detail: String,
    ) -> Self {
        Self::Detailed {
            text: Box::new(text),
            joint,
            detail,
        }
    }

    fn within(&self, width: usize) -> String {
        match self {
            Self::Text(text) => shorten(text.clone(), width),
            Self::Fitted(text) => shorten(text(width), width),
            Self::Detailed {
                text,
                joint,
                detail,
            } => match self.below(width) {
                Some(_) => shorten(text(width), width),
                None => text(width) + joint + detail,
            },
        }
    }

    /// The detail that goes below the row if the column has this width; `None`: it fits.
    fn below(&self, width: usize) -> Option<&str> {
        match self {
            Self::Detailed {
                text,
                joint,
                detail,
            } => {
                let whole = columns(&text(WHOLE)) + joint.len() + columns(detail);
                (whole > width).then_some(detail.as_str())
            }
            Self::Text(_) | Self::Fitted(_) => None,
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Rows of cells. A column without any text in its rows is left out.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that it lacks are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, the titles first if there are any.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|at| self.natural(at)).collect();
        let kept = self.layout(&natural, width);
        let mut lines = Vec::new();
        if self.columns.iter().any(|it| !it.title.is_empty()) {
            lines.push(line(kept.iter().map(|&(at, width)| {
                let column = &self.columns[at];
                (column, shorten(column.title.clone(), width), width)
            })));
        }
        for row in &self.rows {
            lines.push(toned_line(kept.iter().map(|&(at, width)| {
                let text = row.get(at).map_or_else(String::new, |it| it.within(width));
                (&self.columns[at], text, width)
            })));
            let mut begin = INDENT;
            for &(at, of_column) in &kept {
                if let Some(detail) = row.get(at).and_then(|it| it.below(of_column)) {
                    lines.extend(wrapped(detail, begin + INDENT, width));
                }
                begin += of_column + BETWEEN;
            }
        }
        lines
    }

    /// The text for output that is not fitted to a page: every column in full, behind one blank.
    pub(crate) fn whole(&self) -> String {
        let lines = self.lines(usize::MAX);
        let lines: Vec<&str> = lines.iter().map(|line| &line[INDENT - 1..]).collect();
        lines.join("\n")
    }

    /// The lines for a program: whole cells without padding, two blanks between them as a cell may hold one.
    pub(crate) fn unaligned(&self) -> Vec<String> {
        let kept = (0..self.columns.len()).filter(|&at| self.natural(at) > 0);
        let kept: Vec<usize> = kept.collect();
        let joined = |text: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = kept.iter().map(|&at| text(at)).collect();
            cells.join("  ").trim_end().to_owned()
        };
        let titles = std::iter::once(joined(&|at| self.columns[at].title.clone()));
        let cell =
            |row: &[Cell], at: usize| row.get(at).map_or_else(String::new, |it| it.within(WHOLE));
        titles
            .chain(self.rows.iter().map(|row| joined(&|at| cell(row, at))))
            .collect()
    }

    /// Width of the whole texts of a column; 0: it has no text.
    fn natural(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let widest = cells.map(|cell| columns(&cell.within(WHOLE))).max();
        match widest {
            None | Some(0) => 0,
            Some(widest) => widest.max(columns(&self.columns[at].title)),
        }
    }

    /// Returns the columns that are shown, each with its width.
    fn layout(&self, natural: &[usize], width: usize) -> Vec<(usize, usize)> {
        let mut kept: Vec<usize> = (0..natural.len()).filter(|&at| natural[at] > 0).collect();
        let least = |at: usize| match self.columns[at].least {
            Some(least) => least.max(columns(&self.columns[at].title)).min(natural[at]),
            None => natural[at],
        };
        let room =
            |kept: &[usize]| width.saturating_sub(INDENT + BETWEEN * kept.len().saturating_sub(1));
        while kept.iter().map(|&at| least(at)).sum::<usize>() > room(&kept) {
            let droppable = kept.iter().filter(|&&at| self.columns[at].rank > 0);
            let Some(&drop) = droppable.max_by_key(|&&at| self.columns[at].rank) else {
                break;
            };
            kept.retain(|&at| at != drop);
        }
        let mut widths: Vec<(usize, usize)> = kept.iter().map(|&at| (at, least(at))).collect();
        let mut left = room(&kept).saturating_sub(widths.iter().map(|it| it.1).sum());
        while left > 0 {
            let short = widths.iter_mut().filter(|it| it.1 < natural[it.0]);
            let Some(narrowest) = short.min_by_key(|it| it.1) else {
                break;
            };
            narrowest.1 += 1;
            left -= 1;
        }
        self.squeeze(&mut widths, room(&kept));
        widths
    }

    /// Shrinks names to their least width, the widest first, if even that does not fit.
    fn squeeze(&self, widths: &mut [(usize, usize)], room: usize) {
        let mut over = widths
            .iter()
            .map(|it| it.1)
            .sum::<usize>()
            .saturating_sub(room);
        while over > 0 {
            let names = widths
                .iter_mut()
                .filter(|it| self.columns[it.0].least.is_some() && it.1 > 1);
            let Some(widest) = names.max_by_key(|it| it.1) else {
                break;
            };
            widest.1 -= 1;
            over -= 1;
        }
    }
}

/// A text in lines that begin at a column.
pub(crate) fn wrapped(text: &str, begin: usize, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if columns(last) + 1 + columns(word) <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(" ".repeat(begin) + word),
        }
    }
    lines
}

/// A line of titles.
fn line<'a>(cells: impl Iterator<Item = (&'a Column, String, usize)>) -> String {
    join(cells.map(|(column, text, width)| (padded(column, &text, width), None)))
}

/// A line of cells in the tones of their columns.
fn toned_line<'a>(cells: impl Iterator<Item = (&'a Column, String, usize)>) -> String {
    join(cells.map(|(column, text, width)| (padded(column, &text, width), column.tone)))
}

fn join(cells: impl Iterator<Item = ([String; 3], Option<Tone>)>) -> String {
    let mut line = " ".repeat(INDENT);
    let mut owed = 0;
    for (at, ([before, text, after], tone)) in cells.enumerate() {
        owed += if at > 0 { BETWEEN } else { 0 } + before.len();
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', owed));
            owed = 0;
            line.push_str(&tone.map_or_else(|| text.clone(), |tone| toned(tone, &text)));
        }
        owed += after.len();
    }
    line
}

/// A cell with the blanks before and after it.
fn padded(column: &Column, text: &str, width: usize) -> [String; 3] {
    let blanks = " ".repeat(width.saturating_sub(columns(text)));
    if column.is_number {
        [blanks, text.to_owned(), String::new()]
    } else {
        [String::new(), text.to_owned(), blanks]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([
            Column::names("", 10),
            Column::number("slow").tone(Tone::Slow),
            Column::number("95 %").rank(2),
            Column::number("empty"),
            Column::names("module", 6).rank(3),
        ]);
        let name = "ns::a_function_of_a_long_name(int, char)";
        let fitted = Cell::fitted(|width| super::super::brief::function(name, width));
        table.row([
            fitted,
            "1.25 ms".into(),
            "1.20 ms .. 1.30 ms".into(),
            "".into(),
            "libone.so".into(),
        ]);
        table.row([
            "f".into(),
            "12 us".into(),
            "".into(),
            "".into(),
            "two".into(),
        ]);
        table
    }

    /// Names are shortened before columns are left out, those of the highest rank first; columns without text are not
    /// shown.
    #[test]
    fn narrower() {
        let table = sample();
        let shown = |width| {
            table
                .lines(width)
                .join("\n")
                .replace(['\u{2}', '\u{5}'], "")
        };
        assert_eq!(
            shown(90),
            "                                               slow                95 %  module\n  \
             ns::a_function_of_a_long_name(int, char)  1.25 ms  1.20 ms .. 1.30 ms  libone.so\n  \
             f                                           12 us                      two"
        );
        assert_eq!(
            shown(60),
            "                         slow                95 %  module\n  \
             ns::a_fun…_name(…)  1.25 ms  1.20 ms .. 1.30 ms  libone.so\n  \
             f                     12 us                      two"
        );
        assert_eq!(
            shown(30),
            "                          slow\n  ns::a_fun…g_name(…)  1.25 ms\n  f                      12 us"
        );
    }

    /// On no page, nothing is left out.
    #[test]
    fn whole() {
        let mut table = Table::new([Column::number("reset"), Column::words("")]);
        let cells = ["1,000", "a name of some words"];
        table.row(cells.map(Into::into));
        table.row(["5", "b"].map(Into::into));
        assert_eq!(
            table.whole(),
            " reset\n 1,000  a name of some words\n     5  b"
        );
    }

    /// The detail of a cell stays beside its name where there is room, and else goes below.
    #[test]
    fn details() {
        let mut table = Table::new([Column::names("", 10), Column::number("slow")]);
        let detail = "<- parse <- handle <- main".to_owned();
        table.row([
            Cell::detailed(|_| "leaf".to_owned(), " ", detail),
            "1 ms".into(),
        ]);
        assert_eq!(
            table.lines(60)[1],
            "  leaf <- parse <- handle <- main  1 ms"
        );
        assert_eq!(
            table.lines(24)[2..],
            ["    <- parse <- handle", "    <- main"]
        );
        assert!(table.lines(24)[1].starts_with("  leaf "));
    }

    proptest! {
        /// No line is wider than the page, as long as its numbers fit.
        #[test]
        fn fits(width in 40_usize..200, names in proptest::collection::vec("[a-z<>関(), ]{0,80}", 1..5)) {
            let mut table = Table::new([
                Column::names("what", 8),
                Column::number("slow"),
                Column::number("95 %").rank(1),
                Column::names("", 8),
                Column::names("by", 8).rank(2),
            ]);
            for name in names {
                let fit = name.clone();
                table.row([
                    Cell::fitted(move |width| super::super::brief::function(&fit, width)),
                    "1.25 ms".into(),
                    "1.20 ms .. 1.30 ms".into(),
                    name.clone().into(),
                    name.into(),
                ]);
            }
            for line in table.lines(width) {
                prop_assert!(columns(&line) <= width, "{line}");
            }
        }
    }
}
