//! Tables: columns as wide as their widest cell, two blanks between them.

use super::{Output, Paint};

/// One cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    /// A text, whoever wrote it: control characters cannot reach the terminal.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: text.as_ref().replace(char::is_control, "?"), paint: Paint::Plain }
    }

    /// In this colour.
    #[must_use]
    pub(crate) const fn in_colour(mut self, paint: Paint) -> Self {
        self.paint = paint;
        self
    }
}

/// A table under its headings.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| Cell::new(heading).in_colour(Paint::Bold));
        Self { rows: vec![headings.collect()] }
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table as text.
    pub(crate) fn render(&self, output: Output) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            for (cell, width) in row.iter().zip(&widths).take(last) {
                // The blanks stay outside of the colour: they are only there for the next column.
                let blanks = width + 2 - cell.text.chars().count();
                text += &output.paint(cell.paint, &cell.text);
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            if let Some(cell) = row.get(last) {
                text += &output.paint(cell.paint, &cell.text);
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["KEY", "LABEL", "LEFT"]);
        table.row(vec![Cell::new("nightly"), Cell::new(""), Cell::new("9s").in_colour(Paint::Yellow)]);
        table.row(vec![Cell::new("ü"), Cell::new("a\x1b[2Jb\n"), Cell::new("")]);
        table
    }

    #[test]
    fn columns_stand_under_each_other_and_nothing_trails() {
        let text = table().render(Output { json: false, colour: false });
        assert_eq!(text, "KEY      LABEL    LEFT\nnightly           9s\nü        a?[2Jb?\n");
    }

    #[test]
    fn colour_changes_no_width() {
        let text = table().render(Output { json: false, colour: true });
        let bare = text.replace("\x1b[1m", "").replace("\x1b[33m", "").replace("\x1b[0m", "");
        assert_eq!(bare, table().render(Output { json: false, colour: false }));
        assert!(text.contains("\x1b[33m9s\x1b[0m"), "{text:?}");
    }
}
