//! Which files may be cached: those of the member that has them.

use ninefold::client::Options;
use ninefold::ns::{Namespace, Order};

use crate::servers::{put, ram};
use crate::support::{CACHE, PLAIN};

#[tokio::test]
async fn what_may_be_cached_of_a_union_says_the_member_that_has_it() {
    for dialect in ["9P2000.L.n1", "9P2000"] {
        let (near, far) = (ram(dialect).await, ram(dialect).await);
        put(&near, "/both", "near").await;
        put(&near, "/near", "near").await;
        put(&far, "/both", "far").await;
        put(&far, "/far", "far").await;
        let ns = Namespace::new(Options::default());
        ns.mount(&near, "/", (Order::Replace, PLAIN)).await.unwrap();
        ns.mount(&near, "/u", (Order::Replace, PLAIN)).await.unwrap();
        ns.mount(&far, "/u", (Order::After, CACHE)).await.unwrap();
        for (name, may) in [("/u/both", false), ("/u/near", false), ("/u/far", true), ("/u", false)] {
            assert_eq!(ns.may_cache(name).await.unwrap(), may, "{dialect} {name}");
        }
    }
}
