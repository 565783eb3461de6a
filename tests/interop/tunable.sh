# shellcheck shell=bash
# For build-image: a copy of siw's source whose compile-time constants are module parameters.

# make_tunable SIW COPY
make_tunable() {
    local names='zcopy_tx|try_gso|loopback_enabled|mpa_crc_required|mpa_crc_strict|siw_tcp_nagle|peer_to_peer'
    cp -r "$1" "$2"
    sed -i -E "s/^const bool ($names)(.*);/bool \1\2;\nmodule_param(\1, bool, 0644);/
        s/^u_char mpa_version.*;/&\nmodule_param(mpa_version, byte, 0644);/" "$2/siw_main.c"
    sed -i -E "0,/^#include/s//#include <linux\/moduleparam.h>\n&/
        s/^static __be16 rtr_type.*;/&\nmodule_param(rtr_type, ushort, 0644);/" "$2/siw_cm.c"
    sed -i -E "s/^extern const bool ($names)/extern bool \1/" "$2"/*.h
    sed -i 's/+= siw\.o/+= siw_tunable.o/; s/siw-y/siw_tunable-y/' "$2/Makefile"
}
