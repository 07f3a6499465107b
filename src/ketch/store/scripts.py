"""The Lua that makes a batch land whole or not at all. Sent with EVAL, so that a SCRIPT FLUSH can't take it away.

Appending is optimistic: ids are chosen here, the XADDs are bulk-encoded by the kernel and go into MULTI between GUARD
and RELEASE. GUARD compares the stream's last-generated-id with the one the ids were chosen behind. Where another client
wrote in between, some XADDs of the batch would fail and the later ones succeed; so GUARD then poisons the stream (moves
last-generated-id past the batch, which makes every XADD fail) and RELEASE puts it back: the refused batch leaves no
trace. It also leaves a fence for this broker session, for the batches already pipelined behind the refused one must not
overtake it. APPEND is the pessimistic form for a contended stream: ids are chosen in Redis, nothing can come between.

Producer state (KIP-98) of one id, a hash field: `epoch last_sequence updated_ms` and up to five `first:last:entry_id`,
the batches that a retry is recognised by. It moves only if its first two words are what the broker thought they were.
"""

from __future__ import annotations

# Lua's stack takes so many values in one unpack (LUAI_MAXCSTACK is 8000, some of them used by the call itself).
WIDEST = 7000

_LAST_ID = """
local function last_id()
 local i=redis.pcall('XINFO','STREAM',KEYS[1])
 if i.err then return not string.find(i.err,'no such key') and i or nil end
 for k=1,#i,2 do if i[k]=='last-generated-id' then return i[k+1] end end
end"""

# producer: {pid, expected head, new head, now, "first:last:"}; record(id) writes, expected() compares
_PRODUCER = """
local function expected(p)
 cur=redis.call('HGET',KEYS[2],ARGV[p]) or ''
 return (cur:match('^%S+ %S+') or '')==ARGV[p+1]
end
local function record(p,id)
 local new,old=ARGV[p+2]..' '..ARGV[p+3],{}
 if cur:match('^%S+')==ARGV[p+2]:match('^%S+') then for b in cur:gmatch('%S+:%S+:%S+') do old[#old+1]=b end end
 for i=math.max(1,#old-3),#old do new=new..' '..old[i] end
 redis.call('HSET',KEYS[2],ARGV[p],new..' '..ARGV[p+4]..id)
end"""

_GUARD = """
local last=last_id()
if type(last)=='table' then return last end
local known=last or '0-0'
local ms,seq=known:match('(%d+)-(%d+)')
ms,seq=tonumber(ms),tonumber(seq)
local bms,bseq=ARGV[2]:match('(%d+)-(%d+)')
bms,bseq=tonumber(bms),tonumber(bseq)
local free=known==ARGV[1] or ARGV[1]=='' and last and (ms<bms or (ms==bms and seq<bseq))
if free and redis.call('EXISTS',KEYS[3])==0{expected} then
{record} return 1
end
redis.call('SET',KEYS[3],known,'PX',60000)
if not last then redis.call('SET',KEYS[1],'') return 0 end
local ems,eseq=tonumber(ARGV[3]),tonumber(ARGV[4])
if ms<ems or (ms==ems and seq<eseq) then redis.call('XSETID',KEYS[1],ARGV[3]..'-'..ARGV[4]) end
return 0"""

# KEYS stream, producers, fence. ARGV expected last id ('' for any below the base id), base id, end ms, end seq[,
# producer]. Returns 1, or 0 for refused.
GUARD = _LAST_ID + _GUARD.format(expected="", record="")
GUARD_PRODUCER = (
    "local cur" + _LAST_ID + _PRODUCER + _GUARD.format(expected=" and expected(5)", record=" record(5,ARGV[2])\n")
)

# KEYS stream, producers, fence. ARGV expected last id, id, producer's words (0|6), [producer, base id], fields and
# values. Returns 1, or 0 for refused. The optimistic append of one entry, which XADD takes or refuses as a whole: so it
# needs no last-generated-id, for which XINFO would hand Lua two entries of up to a megabyte: in a stream that is not
# empty nothing above the expected id can have been trimmed, for the older ones go first, and an empty one has none to
# hand. What somebody has added and taken away by XDEL is not seen here, but Redis tells, see `Watcher.moved`.
SINGLE = (
    "local cur"
    + _LAST_ID
    + _PRODUCER
    + """
local function refuse()
 redis.call('SET',KEYS[3],'up','PX',60000)
 return 0
end
local p=4+tonumber(ARGV[3])
if redis.call('EXISTS',KEYS[3])==1 then return 0 end
if p>4 and not expected(4) then return refuse() end
if ARGV[1]~='0-0' and redis.call('EXISTS',KEYS[1])==0 then return refuse() end
local above=redis.pcall('XRANGE',KEYS[1],'('..ARGV[1],'+','COUNT',1)
if above.err then return above end
if #above>0 then return refuse() end
if redis.call('XLEN',KEYS[1])==0 and (last_id() or '0-0')~=ARGV[1] then return refuse() end
local added=redis.pcall('XADD',KEYS[1],ARGV[2],unpack(ARGV,p))
if type(added)=='table' and added.err then
 return string.find(added.err,'equal or smaller') and refuse() or added
end
if p>4 then record(4,ARGV[9]) end
redis.call('XLEN',KEYS[1])
return 1"""
)

# KEYS stream, fence. Undoes the poison when GUARD has just refused; the fence stays. Else the connection goes on being
# told of changes, see `watcher`, for which it has to read.
RELEASE = """
local last=redis.call('GET',KEYS[2])
if not last then return redis.call('XLEN',KEYS[1]) end
if last~='up' then
 if redis.call('TYPE',KEYS[1]).ok=='string' then redis.call('DEL',KEYS[1])
 else redis.call('XSETID',KEYS[1],last) end
 redis.call('SET',KEYS[2],'up','PX',60000)
end
return 1"""

# KEYS stream, producers. ARGV bits, floor ms, floor seq, offsets of an entry, whether there must be a stream (0|1),
# producer's words (0|5), [producer], then per entry the number of its fields and values, and these. Returns the id of
# the first offset, 0 where the producer's state or the stream is not what was expected, -1 for an entry too wide. An
# entry's id is that of the last of its offsets.
APPEND = (
    "local cur"
    + _LAST_ID
    + _PRODUCER
    + """
local last=last_id()
if type(last)=='table' then return last end
if ARGV[5]=='1' and not last then return 0 end
if ARGV[6]=='5' and not expected(7) then return 0 end
local limit=2^tonumber(ARGV[1])
local ms,seq=(last or '0-0'):match('(%d+)-(%d+)')
ms,seq=tonumber(ms),tonumber(seq)+1
ms,seq=ms+math.floor(seq/limit),seq%limit
local fms,fseq=tonumber(ARGV[2]),tonumber(ARGV[3])
if ms<fms or (ms==fms and seq<fseq) then ms,seq=fms,fseq end
local step=tonumber(ARGV[4])-1
local p=7+tonumber(ARGV[6])
local first=p
while p<=#ARGV do
 local n=tonumber(ARGV[p])
 if n>@WIDEST then return -1 end
 p=p+1+n
end
p=first
local base=string.format('%.0f-%.0f',ms,seq)
if ARGV[6]=='5' then record(7,base) end
while p<=#ARGV do
 local n=tonumber(ARGV[p])
 seq=seq+step
 if seq>=limit then ms,seq=ms+math.floor(seq/limit),seq%limit end
 redis.call('XADD',KEYS[1],string.format('%.0f-%.0f',ms,seq),unpack(ARGV,p+1,p+n))
 p=p+1+n
 seq=seq+1
 if seq==limit then ms,seq=ms+1,0 end
end
return base"""
).replace("@WIDEST", str(WIDEST))

# KEYS stream. ARGV XRANGE or XREVRANGE, first, last, most. The id of each entry and how many offsets lie in it below
# the last: a batch's last offset delta, as its bytes have it.
HEADS = """
local heads={}
for i,e in ipairs(redis.call(ARGV[1],KEYS[1],ARGV[2],ARGV[3],'COUNT',ARGV[4])) do
 local delta=0
 for j=1,#e[2],2 do
  if e[2][j]=='batch' and #e[2][j+1]>=61 then
   local a,b,c,d=string.byte(e[2][j+1],24,27)
   if a<128 then delta=((a*256+b)*256+c)*256+d end
   break
  end
 end
 heads[i]={e[1],delta}
end
return heads"""

# KEYS stream. ARGV first, most, bytes. The id of the last of the entries that take so many bytes, and their bytes.
SIZES = """
local id,total='',0
for _,e in ipairs(redis.call('XRANGE',KEYS[1],ARGV[1],'+','COUNT',ARGV[2])) do
 if total>=tonumber(ARGV[3]) then break end
 id=e[1]
 for j=1,#e[2] do total=total+#e[2][j] end
end
return {id,total}"""

# KEYS stream. ARGV field, size. XINFO STREAM with each entry as its id, the bytes in it, and the first of a field.
INFO = """
local i=redis.pcall('XINFO','STREAM',KEYS[1])
if i.err then return i end
for k=2,#i,2 do
 local e=i[k]
 if type(e)=='table' then
  local size,head=0,''
  for j=1,#e[2] do size=size+#e[2][j] end
  for j=1,#e[2],2 do if e[2][j]==ARGV[1] then head=string.sub(e[2][j+1],1,tonumber(ARGV[2])) break end end
  i[k]={e[1],size,head}
 end
end
return i"""
