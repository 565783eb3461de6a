//! Two hosts with two routers between them, whose link may get narrower than the hosts' own.

use super::link::{self, INTERFACE, LinkOptions};
use super::namespace::Namespace;
use super::{Host, Lab, host_v4 as v4, host_v6 as v6};

/// A router's interfaces: to its host, and to the other router.
const TO_HOST: &str = "host";
const TO_ROUTER: &str = "router";

/// The two routers, the first host's and the second host's, and the link between them.
#[derive(Clone, Debug)]
pub struct Routers {
    routers: [Namespace; 2],
}

impl Routers {
    /// Makes the link between the routers as wide or narrow as this MTU says. They answer what is
    /// too large for it, and must not be fragmented, with ICMP errors.
    pub fn set_mtu(&self, mtu: u32) {
        for router in &self.routers {
            let mtu = mtu.to_string();
            router.ip(&["link", "set", "dev", TO_ROUTER, "mtu", &mtu]);
        }
    }

    /// Gives the router of `host`, the first of the two, another Ethernet address, as if another
    /// machine had taken its place; the host's kernel knows of it at once.
    pub fn replace_gateway(&self, host: &Host) {
        const MAC: &str = "02:00:00:00:00:aa";
        let [router, _] = &self.routers;
        router.ip(&["link", "set", "dev", TO_HOST, "address", MAC]);
        for family in ["-4", "-6"] {
            let route = host.namespace.ip(&[family, "route", "show", "default"]);
            let gateway = route.split_whitespace().nth(2).unwrap_or_default();
            let neighbour = ["neigh", "replace", gateway, "lladdr", MAC, "dev", INTERFACE];
            host.namespace.ip(&neighbour);
        }
    }

    /// No packet to this host is forwarded, and the sender of one is told that it is prohibited.
    pub fn prohibit(&self, host: &Host) {
        for router in &self.routers {
            for address in [format!("{}/32", host.v4), format!("{}/128", host.v6)] {
                router.ip(&["route", "add", "prohibit", &address]);
            }
        }
    }

    /// The first host's router gives what leaves by IPv4 an address of its own, and UDP ports by chance (NAT).
    pub fn masquerade(&self) {
        let rules = "table ip nat { chain out { type nat hook postrouting priority 100; \
                     oifname \"router\" masquerade random; }; }";
        let [router, _] = &self.routers;
        let nft = router.command("nft").arg(rules);
        drop(nft.run().success());
    }

    /// The routers send nothing of their own any more: no ICMP error either.
    pub fn silence(&self) {
        for router in &self.routers {
            for family in ["-4", "-6"] {
                let rule = ["rule", "add", "iif", "lo", "pref", "1", "blackhole"];
                router.ip(&[&[family][..], &rule].concat());
            }
        }
    }
}

impl Lab {
    /// Adds two hosts, each in a network of its own behind a router of its own. All links begin with
    /// the same MTU.
    pub fn routed(&mut self, options: &LinkOptions) -> (Host, Host, Routers) {
        let numbers = [(); 3].map(|()| self.next_link());
        let [left, middle, right] = numbers;
        let hosts = [(left, "a"), (right, "b")]
            .map(|(link, role)| self.namespace(&format!("{link}{role}")));
        let routers = [(left, "ra"), (right, "rb")]
            .map(|(link, role)| self.namespace(&format!("{link}{role}")));
        let [ra, rb] = &routers;
        link::veth((ra, TO_ROUTER), (rb, TO_ROUTER), options);
        for (router, number) in [(ra, 1), (rb, 2)] {
            add_addresses(router, TO_ROUTER, middle, number);
            for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                router.sysctl(key, "1");
            }
        }
        for ((host, router), link) in hosts.iter().zip(&routers).zip([left, right]) {
            link::veth((host, INTERFACE), (router, TO_HOST), options);
            add_addresses(host, INTERFACE, link, 1);
            add_addresses(router, TO_HOST, link, 254);
            for gateway in [v4(link, 254).to_string(), v6(link, 254).to_string()] {
                host.ip(&["route", "add", "default", "via", &gateway]);
            }
        }
        for (router, other, to) in [(ra, 2, right), (rb, 1, left)] {
            let networks = [
                (format!("{}/24", v4(to, 0)), v4(middle, other).to_string()),
                (format!("{}/64", v6(to, 0)), v6(middle, other).to_string()),
            ];
            for (network, gateway) in networks {
                router.ip(&["route", "add", &network, "via", &gateway]);
            }
        }
        let [a, b] = hosts;
        let host = |namespace, link| Host {
            namespace,
            v4: v4(link, 1),
            v6: v6(link, 1),
        };
        (host(a, left), host(b, right), Routers { routers })
    }
}

fn add_addresses(namespace: &Namespace, interface: &str, link: u8, number: u8) {
    let v4 = format!("{}/24", v4(link, number));
    let v6 = format!("{}/64", v6(link, number));
    namespace.ip(&["addr", "add", &v4, "dev", interface]);
    namespace.ip(&["addr", "add", &v6, "dev", interface, "nodad"]);
}
