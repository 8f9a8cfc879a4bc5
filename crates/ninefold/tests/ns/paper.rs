//! What S5 says of its mount table, sentence by sentence.

use ninefold::ns::mtab::DEPTH_MAX;
use ninefold::ns::{Dot, Flags, Member, Mtab, Order, Refused};

use crate::support::{CACHE, CREATE, PLAIN, Space, files_of, path};

const REPLACE: (Order, Flags) = (Order::Replace, PLAIN);
const AFTER: (Order, Flags) = (Order::After, PLAIN);
const BEFORE: (Order, Flags) = (Order::Before, PLAIN);

#[test]
fn the_longest_prefix_that_is_a_mount_point_is_where_the_rest_is_walked_from() {
    let mut space = Space::at(1);
    space.mount(2, "/usr", REPLACE).unwrap();
    space.mount(3, "/usr/ken/lib", REPLACE).unwrap();
    for (at, file, left) in
        [("/usr/ken/src/x", 2, 3), ("/usr/ken/lib", 3, 0), ("/usr/ken/lib/a", 3, 1), ("/usr/ken", 2, 1), ("/bin", 1, 1)]
    {
        let whole = path(at);
        let found = space.table.resolve(&whole);
        assert_eq!((found.members[0].file, whole.len() - found.names), (file, left), "{at}");
    }
}

#[test]
fn a_second_bind_does_not_change_what_is_seen_at_the_target_of_the_first() {
    // bind /a /b; bind /x /a/c
    let mut space = Space::at(1);
    space.bind("/a", "/b", REPLACE).unwrap();
    let before = space.seen("/b/c");
    space.bind("/x", "/a/c", REPLACE).unwrap();
    assert_eq!(space.seen("/b/c"), before);
    let (of_a, x) = (space.below(1, "/a/c"), space.below(1, "/x"));
    assert_eq!((space.seen("/b/c"), space.seen("/a/c")), (vec![of_a], vec![x]));
}

#[test]
fn what_was_mounted_below_a_name_comes_along_with_a_bind() {
    let mut space = Space::at(1);
    space.mount(2, "/a/c", REPLACE).unwrap();
    space.bind("/a", "/b", REPLACE).unwrap();
    assert_eq!(space.seen("/b/c"), [2]);
    space.table.unmount(None, &path("/a/c")).unwrap();
    assert_eq!(space.seen("/b/c"), [2]);
}

#[test]
fn after_clear_there_is_one_entry_and_that_is_for_slash() {
    let mut space = Space::at(1);
    space.mount(2, "/a", REPLACE).unwrap();
    space.mount(3, "/a/b", AFTER).unwrap();
    space.table.clear();
    assert_eq!(space.table.len(), 1);
    let mounts: Vec<String> = space.table.mounts().into_iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(mounts, ["/"]);
    let below = space.below(1, "/a/b");
    assert_eq!(space.seen("/a/b"), [below]);
}

#[test]
fn slash_cannot_be_taken_away() {
    let mut space = Space::at(1);
    assert_eq!(space.table.unmount(None, &path("/")), Err(Refused::Root));
    assert_eq!(space.table.unmount(Some(&[1]), &path("/")), Err(Refused::Root));
    space.mount(2, "/", BEFORE).unwrap();
    space.table.unmount(Some(&[1]), &path("/")).unwrap();
    assert_eq!(space.seen("/"), [2]);
}

#[test]
fn a_bind_of_a_file_onto_itself_is_ignored() {
    let mut space = Space::at(1);
    space.mount(2, "/a", REPLACE).unwrap();
    let generation = space.table.generation();
    space.bind("/a", "/a", (Order::After, CREATE)).unwrap();
    space.bind("/a/../b/.", "/b", (Order::Before, CREATE)).unwrap();
    assert_eq!((space.seen("/a"), space.table.generation()), (vec![2], generation));
}

#[test]
fn the_entries_of_a_union_that_is_bound_are_all_copied() {
    let mut space = Space::at(1);
    space.mount(2, "/bin", (Order::Before, CREATE)).unwrap();
    space.mount(3, "/bin", AFTER).unwrap();
    let old = space.below(1, "/bin");
    assert_eq!(space.seen("/bin"), [2, old, 3]);
    assert_eq!(files_of(&space.table.source(&path("/bin")).unwrap()), [2, old, 3]);
    space.bind("/bin", "/other", REPLACE).unwrap();
    assert_eq!(space.seen("/other"), [2, old, 3]);
    // And they are its own from then on.
    space.mount(4, "/bin", BEFORE).unwrap();
    space.table.unmount(Some(&[3]), &path("/bin")).unwrap();
    assert_eq!((space.seen("/bin"), space.seen("/other")), (vec![4, 2, old], vec![2, old, 3]));
    // Whole unions go in front and behind in their order.
    space.bind("/bin", "/other", AFTER).unwrap();
    assert_eq!(space.seen("/other"), [2, old, 3, 4, 2, old]);
}

#[test]
fn a_union_holds_its_files_in_the_order_that_was_asked_for() {
    let mut space = Space::at(1);
    for (file, how) in [(2, REPLACE), (3, AFTER), (4, BEFORE), (5, AFTER)] {
        space.mount(file, "/bin", how).unwrap();
    }
    assert_eq!(space.seen("/bin"), [4, 2, 3, 5]);
    assert!(space.table.resolve(&path("/bin")).is_union());
    space.mount(6, "/bin", REPLACE).unwrap();
    assert_eq!(space.seen("/bin"), [6]);
}

#[test]
fn a_file_is_made_in_the_first_of_a_union_that_allows_it() {
    let mut space = Space::at(1);
    let made = |space: &Space| space.table.resolve(&path("/bin")).creates_in().map(|member| member.file);
    space.mount(2, "/bin", REPLACE).unwrap();
    // The only one is no union.
    assert_eq!(made(&space), Some(2));
    space.mount(3, "/bin", AFTER).unwrap();
    assert_eq!(made(&space), None);
    space.mount(4, "/bin", (Order::After, CREATE)).unwrap();
    space.mount(5, "/bin", (Order::After, CREATE)).unwrap();
    assert_eq!(made(&space), Some(4));
    space.mount(6, "/bin", (Order::Before, CREATE)).unwrap();
    assert_eq!(made(&space), Some(6));
}

#[test]
fn nothing_is_made_in_what_was_there_before_the_union() {
    let mut space = Space::at(1);
    space.table.clear();
    space.mount(7, "/", (Order::Replace, CREATE)).unwrap();
    space.mount(2, "/bin", AFTER).unwrap();
    assert!(space.table.resolve(&path("/bin")).creates_in().is_none());
}

#[test]
fn what_is_bound_keeps_its_flags_and_gets_those_of_the_bind() {
    let mut space = Space::at(1);
    space.mount(2, "/a", (Order::Replace, CACHE)).unwrap();
    space.bind("/a", "/b", (Order::Replace, CREATE)).unwrap();
    let both = Flags { create: true, cache: true };
    assert_eq!(space.table.resolve(&path("/b")).members, [Member { file: 2, flags: both }]);
    // What may be cached may be so below, and by another name.
    space.bind("/a/sub", "/c", REPLACE).unwrap();
    assert_eq!(space.table.resolve(&path("/c/x")).members[0].flags, CACHE);
}

#[test]
fn dot_is_where_a_path_below_it_is_walked_from() {
    let mut space = Space::at(1);
    let dot = space.dot("/usr/ken");
    let file = space.below(1, "/usr/ken");
    assert_eq!(dot.serves(&space.table, &path("/usr/ken/src/x")).map(|member| member.file), Some(file));
    assert!(dot.serves(&space.table, &path("/usr/rob")).is_none());
    assert!(dot.serves(&space.table, &path("/usr/kenneth")).is_none());
}

#[test]
fn dot_in_a_union_resolves_no_path() {
    let mut space = Space::at(1);
    space.mount(2, "/bin", AFTER).unwrap();
    let dot = space.dot("/bin");
    assert!(dot.serves(&space.table, &path("/bin/ls")).is_none());
    // Below one of its files it does.
    let dot = space.dot("/bin/sub");
    assert!(dot.serves(&space.table, &path("/bin/sub/x")).is_some());
}

#[test]
fn dot_is_not_used_when_something_is_mounted_below_it() {
    let mut space = Space::at(1);
    space.mount(2, "/usr/ken/tmp", REPLACE).unwrap();
    let dot = space.dot("/usr/ken");
    assert!(dot.serves(&space.table, &path("/usr/ken/src")).is_none());
}

#[test]
fn dot_is_resolved_again_when_the_table_changes() {
    let mut space = Space::at(1);
    let dot = space.dot("/a/b");
    assert!(!dot.is_stale(&space.table));
    space.mount(2, "/a", REPLACE).unwrap();
    assert!(dot.is_stale(&space.table));
    assert!(dot.serves(&space.table, &path("/a/b/c")).is_none(), "it would be the file of before");
    let dot = space.dot("/a/b");
    let file = space.below(2, "/b");
    assert_eq!(dot.serves(&space.table, &path("/a/b/c")).map(|member| member.file), Some(file));
    // The name stays what it was.
    assert_eq!(dot.path(), &path("/a/b"));
    assert!(Dot::<u32>::new(path("/a")).is_stale(&space.table));
}

#[test]
fn a_private_copy_does_not_see_the_changes_of_another() {
    let mut space = Space::at(1);
    space.mount(2, "/a", REPLACE).unwrap();
    let copy = space.table.clone();
    space.mount(3, "/a", REPLACE).unwrap();
    space.mount(4, "/b", REPLACE).unwrap();
    assert_eq!(copy.resolve(&path("/a")).members[0].file, 2);
    assert_eq!((copy.len(), space.table.len()), (2, 3));
}

#[test]
fn what_replaces_a_file_replaces_what_was_mounted_below_it() {
    let mut space = Space::at(1);
    space.mount(2, "/a/b", REPLACE).unwrap();
    space.mount(3, "/a", REPLACE).unwrap();
    let below = space.below(3, "/b");
    assert_eq!(space.seen("/a/b"), [below]);
    space.mount(4, "/a/b", REPLACE).unwrap();
    space.table.unmount(None, &path("/a")).unwrap();
    let below = space.below(1, "/a/b");
    assert_eq!(space.seen("/a/b"), [below]);
}

#[test]
fn what_comes_along_with_a_bind_replaces_what_was_mounted_below_its_names() {
    let mut space = Space::at(1);
    space.mount(2, "/new/c", REPLACE).unwrap();
    space.mount(3, "/old/c/d", REPLACE).unwrap();
    space.mount(4, "/old/e", REPLACE).unwrap();
    space.bind("/new", "/old", BEFORE).unwrap();
    let below = space.below(2, "/d");
    assert_eq!((space.seen("/old/c"), space.seen("/old/c/d"), space.seen("/old/e")), (vec![2], vec![below], vec![4]));
}

#[test]
fn a_name_without_a_file_is_bound_only_in_front_of_what_is_there() {
    let mut space = Space::at(1);
    space.files.missing = Some("n");
    space.mount(2, "/n/far", REPLACE).unwrap();
    let generation = space.table.generation();
    for how in [REPLACE, AFTER] {
        assert_eq!(space.bind("/n", "/x", how), Err(Refused::NoFile));
    }
    assert_eq!(space.table.generation(), generation);
    space.bind("/n", "/x", BEFORE).unwrap();
    let x = space.below(1, "/x");
    assert_eq!((space.seen("/x"), space.seen("/x/far")), (vec![x], vec![2]));
}

#[test]
fn a_name_on_the_way_to_a_mount_point_is_there_without_any_server() {
    let mut space = Space::default();
    space.mount(2, "/n/far/away", REPLACE).unwrap();
    let whole = path("/n/far");
    let found = space.table.resolve(&whole);
    assert!(found.members.is_empty() && found.is_named() && found.has_mounts_below());
    assert_eq!(found.children().collect::<Vec<_>>(), [b"away"]);
    assert!(!space.table.resolve(&path("/n/near")).is_named());
}

#[test]
fn what_is_not_mounted_cannot_be_unmounted() {
    let mut space = Space::at(1);
    space.mount(2, "/a/b", REPLACE).unwrap();
    assert_eq!(space.table.unmount(None, &path("/a")), Err(Refused::NotMounted));
    assert_eq!(space.table.unmount(Some(&[3]), &path("/a/b")), Err(Refused::NotMember));
}

#[test]
fn a_lookup_visits_one_node_for_each_name_in_a_table_of_ten_thousand_mounts() {
    let mut space = Space::at(1);
    for number in 0..10_000 {
        space.mount(number, &format!("/n/{}/m{number}", number % 10), REPLACE).unwrap();
    }
    assert_eq!(space.table.len(), 10_001);
    for number in [0, 1, 4_999, 9_999] {
        let whole = path(&format!("/n/{}/m{number}/a/b/c", number % 10));
        let found = space.table.resolve(&whole);
        assert_eq!((found.members[0].file, found.names), (number, 3));
        // The root and three names: what is below is not looked for.
        assert_eq!(found.visited, 4);
    }
}

#[test]
fn a_table_does_not_grow_without_bound() {
    let mut space = Space::at(1);
    let deep = "/d".repeat(DEPTH_MAX);
    space.mount(2, &deep, REPLACE).unwrap();
    assert_eq!(space.mount(2, &format!("{deep}/d"), REPLACE), Err(Refused::TooDeep));
    // Each of them doubles what there is.
    let mut space = Space::at(1);
    space.mount(2, "/a/x", REPLACE).unwrap();
    let mut refused = None;
    for line in 0..64 {
        refused = space.bind("/a", &format!("/a/{line}"), BEFORE).err();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(Refused::TooMany));
}

#[test]
fn an_empty_table_resolves_nothing() {
    let table = Mtab::<u32>::new();
    let root = path("/");
    let found = table.resolve(&root);
    assert!(found.members.is_empty() && found.is_named() && !found.is_mount_point());
    assert!(!table.resolve(&path("/a")).is_named());
}
