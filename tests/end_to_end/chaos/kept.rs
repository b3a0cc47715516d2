//! What a storm that failed leaves behind, so that somebody can read it.

use crate::end_to_end::world::World;
use std::path::Path;
use std::sync::Arc;

/// Dropped by a panic, it copies the world's folder and what the ledger says into the folder of
/// temporary files, and tells where.
pub(super) struct Kept(pub(super) Arc<World>);

impl Drop for Kept {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let to = std::env::temp_dir().join(format!("digestd-{}", self.0.campaign));
        std::fs::create_dir_all(&to).ok();
        for file in std::fs::read_dir(self.0.folder()).into_iter().flatten().flatten() {
            std::fs::copy(file.path(), to.join(file.file_name())).ok();
        }
        let world = Arc::clone(&self.0);
        let file = to.join("ledger.txt");
        // A runtime of its own: this one is unwinding. The ledger may be away.
        std::thread::spawn(move || write_ledger(&world, &file)).join().ok();
        eprintln!("what the storm left is in {}", to.display());
    }
}

fn write_ledger(world: &World, file: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut text = String::new();
    for table in ["runs", "operations", "attempts", "decisions"] {
        let sql = format!("select row_to_json(r)::text from (select * from @{table}) r");
        for row in runtime.block_on(world.ledger.rows(&sql)) {
            text.push_str(table);
            text.push(' ');
            text.push_str(&row[0]);
            text.push('\n');
        }
    }
    std::fs::write(file, text).ok();
}
