// Hosttree serves a directory in 9P2000 over loopback TCP with the library 9fans.net/go/plan9/srv9p.
//
//	hosttree DIR
//
// prints `9p://ADDRESS` when it listens and serves until it is killed. All that knows the protocol is the library's:
// negotiation (which answers "9P2000" to whatever begins with 9P), fids, tags, flush, frames, directory reads. What
// is here says what the messages mean for files, as open(5), remove(5) and stat(5) have it, for one user and with no
// permissions of its own. Symbolic links are followed: 9P2000 knows none.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"9fans.net/go/plan9"
	"9fans.net/go/plan9/srv9p"
)

// A node is what a fid stands for.
type node struct {
	mu      sync.Mutex
	path    string        // on the host
	file    *os.File      // when open
	entries []os.FileInfo // of an open directory, from its last read at offset 0
	remove  bool          // when clunked (ORCLOSE)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("hosttree: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: hosttree DIR")
	}
	root, err := filepath.Abs(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	// Permissions are the client's to say, masked by the directory's.
	syscall.Umask(0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("9p://%s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			server(root).Serve(conn, conn) // a srv9p.Server has one conversation
		}()
	}
}

func server(root string) *srv9p.Server {
	return &srv9p.Server{
		Attach: func(_ context.Context, fid, _ *srv9p.Fid, _, aname string) (plan9.Qid, error) {
			if strings.Trim(aname, "/") != "" {
				return plan9.Qid{}, srv9p.Ebadattach
			}
			fid.SetAux(&node{path: root})
			return qidAt(root)
		},
		Walk: func(_ context.Context, fid, newfid *srv9p.Fid, names []string) ([]plan9.Qid, error) {
			clone := func(old, new *srv9p.Fid) error {
				new.SetAux(&node{path: at(old).path})
				return nil
			}
			step := func(fid *srv9p.Fid, name string) (plan9.Qid, error) {
				next := filepath.Join(at(fid).path, name)
				if name == ".." && !strings.HasPrefix(next+"/", root+"/") {
					next = root
				}
				qid, err := qidAt(next)
				if err == nil {
					fid.SetAux(&node{path: next})
				}
				return qid, err
			}
			return srv9p.Walk(fid, newfid, names, clone, step)
		},
		Open: func(_ context.Context, fid *srv9p.Fid, mode uint8) error {
			return at(fid).open(mode, 0)
		},
		Create: func(_ context.Context, fid *srv9p.Fid, name string, perm plan9.Perm, mode uint8) (plan9.Qid, error) {
			return create(fid, name, perm, mode)
		},
		Read: func(_ context.Context, fid *srv9p.Fid, data []byte, offset int64) (int, error) {
			n := at(fid)
			if fid.Qid().Type&plan9.QTDIR != 0 {
				return n.readDir(fid, data, offset)
			}
			count, err := n.file.ReadAt(data, offset)
			if count > 0 || err == io.EOF {
				err = nil
			}
			return count, plain(err)
		},
		Write: func(_ context.Context, fid *srv9p.Fid, data []byte, offset int64) (int, error) {
			count, err := at(fid).file.WriteAt(data, offset)
			return count, plain(err)
		},
		Remove: func(_ context.Context, fid *srv9p.Fid) error {
			return plain(os.Remove(at(fid).path))
		},
		Stat: func(_ context.Context, fid *srv9p.Fid) (*plan9.Dir, error) {
			info, err := os.Stat(at(fid).path)
			if err != nil {
				return nil, plain(err)
			}
			dir := describe(info)
			if at(fid).path == root {
				dir.Name = "/"
			}
			return dir, nil
		},
		Wstat: func(_ context.Context, fid *srv9p.Fid, dir *plan9.Dir) error {
			if at(fid).path == root && dir.Name != "" && dir.Name != "/" {
				return errors.New("the root has no name to change")
			}
			return at(fid).wstat(dir)
		},
		Sync: func(_ context.Context, fid *srv9p.Fid) error {
			if file := at(fid).file; file != nil {
				return plain(file.Sync())
			}
			return nil
		},
		Clunk: func(fid *srv9p.Fid) {
			n, made := fid.Aux().(*node)
			if !made {
				return // a walk that failed
			}
			if n.file != nil {
				n.file.Close()
			}
			if n.remove {
				os.Remove(n.path)
			}
		},
	}
}

func at(fid *srv9p.Fid) *node {
	return fid.Aux().(*node)
}

func (n *node) open(mode uint8, flags int) error {
	switch mode & 3 {
	case plan9.OREAD, plan9.OEXEC:
		flags |= os.O_RDONLY
	case plan9.OWRITE:
		flags |= os.O_WRONLY
	case plan9.ORDWR:
		flags |= os.O_RDWR
	}
	if mode&plan9.OTRUNC != 0 {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(n.path, flags, 0)
	if err != nil {
		return plain(err)
	}
	n.file, n.remove = file, mode&plan9.ORCLOSE != 0
	return nil
}

// create masks the permissions by those of the directory: open(5).
func create(fid *srv9p.Fid, name string, perm plan9.Perm, mode uint8) (plan9.Qid, error) {
	parent := at(fid)
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return plan9.Qid{}, errors.New("bad file name")
	}
	info, err := os.Stat(parent.path)
	if err != nil {
		return plan9.Qid{}, plain(err)
	}
	made := &node{path: filepath.Join(parent.path, name)}
	above := info.Mode().Perm()
	if perm&plan9.DMDIR != 0 {
		err = os.Mkdir(made.path, fs.FileMode(perm&0o777)&above)
	} else {
		var file *os.File
		mask := ^fs.FileMode(0o666) | above&0o666
		file, err = os.OpenFile(made.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(perm&0o777)&mask)
		if err == nil {
			file.Close()
		}
	}
	if err != nil {
		return plan9.Qid{}, plain(err)
	}
	if err := made.open(mode, 0); err != nil {
		return plan9.Qid{}, err
	}
	fid.SetAux(made)
	return qidAt(made.path)
}

func (n *node) readDir(fid *srv9p.Fid, data []byte, offset int64) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if offset == 0 {
		names, err := os.ReadDir(n.path)
		if err != nil {
			return 0, plain(err)
		}
		n.entries = n.entries[:0]
		for _, name := range names {
			// What vanished meanwhile, and a link that leads nowhere, is not there.
			if info, err := os.Stat(filepath.Join(n.path, name.Name())); err == nil {
				n.entries = append(n.entries, named{info, name.Name()})
			}
		}
	}
	return fid.ReadDir(data, offset, func(i int, dir *plan9.Dir) bool {
		if i >= len(n.entries) {
			return false
		}
		*dir = *describe(n.entries[i])
		return true
	})
}

// A named is the file that a link leads to, by the link's name.
type named struct {
	os.FileInfo
	name string
}

func (n named) Name() string { return n.name }

// wstat changes what dir does not leave alone: stat(5). What may fail for the name is looked at first.
func (n *node) wstat(dir *plan9.Dir) error {
	info, err := os.Stat(n.path)
	if err != nil {
		return plain(err)
	}
	if dir.Uid != "" && dir.Uid != describe(info).Uid {
		return errors.New("wstat cannot change the owner")
	}
	target := n.path
	if dir.Name != "" {
		if strings.ContainsAny(dir.Name, "/\x00") || dir.Name == "." || dir.Name == ".." {
			return errors.New("bad file name")
		}
		target = filepath.Join(filepath.Dir(n.path), dir.Name)
		if _, err := os.Lstat(target); target != n.path && err == nil {
			return errors.New("file already exists")
		}
	}
	gid := -1
	if dir.Gid != "" {
		if gid, err = groupNumber(dir.Gid); err != nil {
			return err
		}
	}
	if ^dir.Length != 0 {
		if info.IsDir() {
			return errors.New("wstat cannot change the length of a directory")
		}
		if err := os.Truncate(n.path, int64(dir.Length)); err != nil {
			return plain(err)
		}
	}
	if ^dir.Mode != 0 {
		if err := os.Chmod(n.path, fs.FileMode(dir.Mode&0o777)); err != nil {
			return plain(err)
		}
	}
	if gid >= 0 {
		if err := os.Chown(n.path, -1, gid); err != nil {
			return plain(err)
		}
	}
	if ^dir.Mtime != 0 || ^dir.Atime != 0 {
		// A zero time leaves alone.
		var access, change time.Time
		if ^dir.Atime != 0 {
			access = time.Unix(int64(dir.Atime), 0)
		}
		if ^dir.Mtime != 0 {
			change = time.Unix(int64(dir.Mtime), 0)
		}
		if err := os.Chtimes(n.path, access, change); err != nil {
			return plain(err)
		}
	}
	if target != n.path {
		if err := os.Rename(n.path, target); err != nil {
			return plain(err)
		}
		n.path = target
	}
	return nil
}

func qidAt(path string) (plan9.Qid, error) {
	info, err := os.Stat(path)
	if err != nil {
		return plan9.Qid{}, plain(err)
	}
	return describe(info).Qid, nil
}

func describe(info os.FileInfo) *plan9.Dir {
	sys := info.Sys().(*syscall.Stat_t)
	dir := &plan9.Dir{
		Qid:    plan9.Qid{Path: sys.Ino, Vers: uint32(info.ModTime().UnixNano())},
		Mode:   plan9.Perm(info.Mode().Perm()),
		Atime:  uint32(sys.Atim.Sec),
		Mtime:  uint32(sys.Mtim.Sec),
		Length: uint64(info.Size()),
		Name:   info.Name(),
		Uid:    userName(sys.Uid),
		Gid:    groupName(sys.Gid),
	}
	dir.Muid = dir.Uid
	if info.IsDir() {
		dir.Qid.Type = plan9.QTDIR
		dir.Mode |= plan9.DMDIR
		dir.Length = 0
	}
	return dir
}

// Names by number, so that a large directory does not read the databases for each entry.
var names sync.Map

func remembered(key string, look func() string) string {
	if name, ok := names.Load(key); ok {
		return name.(string)
	}
	name := look()
	names.Store(key, name)
	return name
}

func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	return remembered("u"+number, func() string {
		if u, err := user.LookupId(number); err == nil {
			return u.Username
		}
		return number
	})
}

func groupName(gid uint32) string {
	number := strconv.FormatUint(uint64(gid), 10)
	return remembered("g"+number, func() string {
		if g, err := user.LookupGroupId(number); err == nil {
			return g.Name
		}
		return number
	})
}

func groupNumber(name string) (int, error) {
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	number, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("unknown group '%s'", name)
	}
	return int(number), nil
}

// plain is the error without the host's path in front.
func plain(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}
