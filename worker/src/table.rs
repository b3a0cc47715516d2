//! Tables for people: aligned columns under a rule, as wide as the terminal at most. Without a
//! terminal they are as wide as their content and plain, so that they can be searched and cut.

use comfy_table::{ContentArrangement, LineStyle, Table as Inner, TableStyle};
use std::fmt;

/// A table with a heading.
pub struct Table(Inner);

impl Table {
    /// A table with these columns and no rows.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        let mut inner = Inner::new();
        inner
            .load_style(
                TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')),
            )
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(columns.iter().copied());
        inner.column_iter_mut().for_each(|column| {
            column.set_padding((0, 1));
        });
        Self(inner)
    }

    /// Adds a row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(cells.into_iter().map(|cell| cell.to_string()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, line) in self.0.lines().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_blanks() {
        let mut table = Table::new(&["class", "then"]);
        table.row(["transport", "retried"]);
        table.row(["stale", "dead"]);
        assert_eq!(
            table.to_string(),
            "class      then\n───────────────────\ntransport  retried\nstale      dead"
        );
    }
}
