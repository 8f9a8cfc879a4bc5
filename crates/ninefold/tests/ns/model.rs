//! The mount table beside a model that was written another way: a flat list of paths, each with its files; what is copied is
//! found by looking at all of it.

use ninefold::ns::{Flags, Order};

use crate::support::{Files, Space, path};

type Names = Vec<String>;
type Member = (u32, Flags);

#[derive(Default)]
struct Model {
    mounts: Vec<(Names, Vec<Member>)>,
}

fn names(text: &str) -> Names {
    text.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

impl Model {
    fn members(&self, at: &[String]) -> Option<&Vec<Member>> {
        self.mounts.iter().find(|(path, _)| path == at).map(|(_, members)| members)
    }

    fn resolve(&self, at: &[String]) -> (Vec<Member>, usize) {
        let longest = self.mounts.iter().filter(|(path, _)| at.starts_with(path)).max_by_key(|(path, _)| path.len());
        longest.map_or((Vec::new(), 0), |(path, members)| (members.clone(), path.len()))
    }

    fn walked(&self, at: &[String], files: &mut Files) -> Option<Member> {
        let (members, count) = self.resolve(at);
        let (file, flags) = *members.first()?;
        if at[count..].iter().any(|name| Some(name.as_str()) == files.missing) {
            return None;
        }
        let file = files.walk(file, at[count..].iter().map(|name| name.as_bytes()));
        Some((file, Flags { create: false, ..flags }))
    }

    fn put(&mut self, at: &[String], members: Vec<Member>) {
        self.mounts.retain(|(path, _)| path != at);
        if !members.is_empty() {
            self.mounts.push((at.to_vec(), members));
        }
    }

    fn drop_below(&mut self, at: &[String]) {
        self.mounts.retain(|(path, _)| !path.starts_with(at) || path.len() == at.len());
    }

    fn join(&mut self, new: Vec<Member>, old: &[String], order: Order, files: &mut Files) {
        let there = match self.members(old) {
            Some(members) => members.clone(),
            None => self.walked(old, files).into_iter().collect(),
        };
        match order {
            Order::Replace => {
                self.drop_below(old);
                self.put(old, new);
            }
            Order::Before => self.put(old, [new, there].concat()),
            Order::After => self.put(old, [there, new].concat()),
        }
    }

    /// Whether it was done.
    fn bind(&mut self, new: &[String], old: &[String], (order, flags): (Order, Flags), files: &mut Files) -> bool {
        if new == old {
            return true;
        }
        let mut source = match self.members(new) {
            Some(members) => members.clone(),
            None => self.walked(new, files).into_iter().collect(),
        };
        if source.is_empty() && order != Order::Before {
            return false;
        }
        for (_, of) in &mut source {
            *of = Flags { create: of.create || flags.create, cache: of.cache || flags.cache };
        }
        let mut below: Vec<_> =
            self.mounts.iter().filter(|(path, _)| path.len() > new.len() && path.starts_with(new)).cloned().collect();
        self.join(source, old, order, files);
        if order != Order::After {
            below.sort_by_key(|(path, _)| path.len());
            // All that goes away first: what comes may lie below what comes.
            let coming: Vec<_> =
                below.into_iter().map(|(path, members)| ([old, &path[new.len()..]].concat(), members)).collect();
            coming.iter().for_each(|(path, _)| self.drop_below(path));
            for (path, members) in coming {
                self.put(&path, members);
            }
        }
        true
    }

    /// Whether it was there.
    fn unmount(&mut self, file: Option<u32>, old: &[String]) -> bool {
        let Some(members) = self.members(old).cloned() else { return false };
        let left: Vec<_> = members.iter().copied().filter(|(of, _)| file.is_some_and(|file| *of != file)).collect();
        if left.len() == members.len() || old.is_empty() && left.is_empty() {
            return false;
        }
        if left.is_empty() {
            self.drop_below(old);
        }
        self.put(old, left);
        true
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Few names, so that they meet.
    fn path(&mut self) -> String {
        let count = self.below(4);
        (0..count).map(|_| ["/a", "/b", "/c"][self.below(3) as usize]).collect::<String>() + "/"
    }

    fn how(&mut self) -> (Order, Flags) {
        let order = [Order::Replace, Order::Before, Order::After][self.below(3) as usize];
        (order, Flags { create: self.below(2) == 0, cache: self.below(4) == 0 })
    }
}

/// Ten operations on a table: after each the path that it was about is looked at, after the last all `paths`. The same ones for
/// the same seed.
fn sequence(seed: u64, paths: &[String]) {
    let (mut random, mut space, mut model) = (Random(seed), Space::default(), Model::default());
    // So that there are names which only lead to mount points.
    space.files.missing = Some("c");
    let mut done = Vec::new();
    for number in 0..10 {
        let (one, two, how) = (random.path(), random.path(), random.how());
        let (new, old) = (names(&one), names(&two));
        match random.below(10) {
            0..4 => {
                done.push(format!("mount {number} {two} {how:?}"));
                space.mount(number, &two, how).unwrap();
                model.join(vec![(number, how.1)], &old, how.0, &mut space.files);
            }
            4..7 => {
                done.push(format!("bind {one} {two} {how:?}"));
                let bound = space.bind(&one, &two, how).is_ok();
                assert_eq!(bound, model.bind(&new, &old, how, &mut space.files), "seed {seed}: {done:#?}");
            }
            7 => {
                done.push(format!("unmount {two}"));
                let unmounted = space.table.unmount(None, &path(&two)).is_ok();
                assert_eq!(unmounted, model.unmount(None, &old), "seed {seed}: {done:#?}");
            }
            8 => {
                let file = random.below(10) as u32;
                done.push(format!("unmount {file} {two}"));
                let unmounted = space.table.unmount(Some(&[file]), &path(&two)).is_ok();
                assert_eq!(unmounted, model.unmount(Some(file), &old), "seed {seed}: {done:#?}");
            }
            _ => {
                done.push("clear".to_owned());
                space.table.clear();
                model.drop_below(&[]);
            }
        }
        compare(&space, &model, &[two], &format!("seed {seed}: {done:#?}"));
    }
    compare(&space, &model, paths, &format!("seed {seed}: {done:#?}"));
}

fn compare(space: &Space, model: &Model, paths: &[String], what: &str) {
    for at in paths {
        let found = path(at);
        let found = space.table.resolve(&found);
        let members: Vec<Member> = found.members.iter().map(|member| (member.file, member.flags)).collect();
        assert_eq!((members, found.names), model.resolve(&names(at)), "{at:?}, {what}");
    }
    let held = model.mounts.iter().map(|(_, members)| members.len()).sum::<usize>();
    assert_eq!(space.table.len(), held, "{what}");
    assert_eq!(space.table.mounts().len(), model.mounts.len(), "{what}");
}

/// All paths of up to three names, and one that nothing is ever mounted below.
fn all_paths() -> Vec<String> {
    let mut paths = vec![String::new()];
    for depth in 0..3 {
        let longest: Vec<String> = paths.iter().filter(|path| path.len() == 2 * depth).cloned().collect();
        paths.extend(longest.iter().flat_map(|path| ["/a", "/b", "/c"].map(|name| format!("{path}{name}"))));
    }
    paths.push("/d/a".to_owned());
    paths
}

#[test]
fn ten_thousand_random_sequences_agree_with_a_flat_list_of_paths() {
    let paths = all_paths();
    for seed in 0..10_000 {
        sequence(seed, &paths);
    }
}
