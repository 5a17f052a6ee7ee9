// The table of virtual functions that every type_info of a DLL points to, and the root of their
// names. Compiled with /GR-: else clang takes the table for another DLL's and renames this one.
class type_info {
public:
    virtual ~type_info() noexcept;
};
type_info::~type_info() noexcept {}
[[gnu::used, clang::no_destroy]] static type_info emits_the_table;

extern "C" {
__declspec(align(16)) struct {
    void *header[2];
} __type_info_root_node;
}
